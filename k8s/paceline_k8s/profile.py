"""A profile: what all runs of a platform have in common, from images to tolerations, in one file of its team."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.extension import Section
from paceline.settings.load_settings import read_yaml

PROFILES = Path(__file__).parent / "profiles"
DEFAULT = "cpu"
Part = Literal["server", "worker", "evaluator", "sharder"]


def _as_quantity(value: object) -> str:
    """Raises ValueError if Kubernetes takes no such amount."""
    if not _QUANTITY.fullmatch(str(value)):
        raise ValueError(f"got {value!r}; expected an amount like 250m, 2 or 2Gi.")
    return str(value)


_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
Quantity = Annotated[str, BeforeValidator(_as_quantity)]
"""An amount as Kubernetes writes it."""
_FROM_RUN = ("data-server", "shards-in-bucket", "script", "kueue")
"""Components that follow from run.yaml and from `queue`, and fit nothing else."""


class Images(Section):
    """One for each program, by tag or digest; the controller has the server's, the evaluator the worker's."""

    server: str
    worker: str
    sharder: str


class Amounts(Section):
    """What a part's container requests, and what it may take at most; what is not named stays as in k8s/base."""

    requests: dict[str, Quantity] = Field({}, description="By resource, like cpu and memory.")
    limits: dict[str, Quantity] = Field({}, description="By resource.")


class Sizes(Section):
    """Of each claim: of each server's checkpoints, of the shards, of the models."""

    checkpoints: Quantity | None = None
    shards: Quantity | None = None
    models: Quantity | None = None


class Profile(Section):
    """Names no run and no number of processes, so it is the same for all runs."""

    images: Images
    pull_secret: str | None = Field(None, description="Name of the Secret by which nodes pull the images.")
    service_account: str | None = Field(None, description="Account of all pods but the controller's.")
    storage_class: str | None = Field(None, description="Of all claims; default: the cluster's own.")
    shared_storage: bool = Field(
        False, description="Makes the claim of the shards ReadWriteMany, which the storage class must offer."
    )
    storage: Sizes = Field(Sizes(), description="Sizes of the claims: checkpoints, shards, models.")
    queue: str | None = Field(None, description="LocalQueue of Kueue in which each run waits.")
    priority_class: str | None = Field(
        None, description="PriorityClass of servers, sharder and evaluator, before workers."
    )
    components: list[str] = Field([], description="Folders of k8s/components; their order makes no difference.")
    resources: dict[Part, Amounts] = Field({}, description="Requests and limits, by part.")
    node_selector: dict[str, str] = Field({}, description="Labels of the nodes for workers.")
    tolerations: list[dict[str, Any]] = Field([], description="Taints that all pods tolerate.")
    patches: list[dict[str, Any]] = Field([], description="Patches of kustomize, for what no key here does.")

    @field_validator("components")
    @classmethod
    def _are_a_platforms(cls, names: list[str]) -> list[str]:
        """Raises ValueError if one is unknown, or follows from run.yaml."""
        known = sorted(path.name for path in (PROFILES.parent / "components").iterdir())
        own = [name for name in known if name not in _FROM_RUN]
        for name in names:
            if name in _FROM_RUN:
                key = "queue of the profile" if name == "kueue" else "run.yaml"
                raise ValueError(f"{name} follows from {key}, so leave it out; here go {', '.join(own)}.")
            if name not in own:
                raise ValueError(f"there is no component '{name}'; expected some of {', '.join(own)}.")
        return names


def read_profile(name: str) -> Profile:
    """Returns the profile of that name in k8s/profiles, or in the file of that path. Raises ConfigError if there is none, or
    lists what is wrong in it."""
    path = Path(name) if "/" in name or name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in PROFILES.glob("*.yaml")))
        raise ConfigError(f"There is no profile '{name}'. Give the path of a file, or one of k8s/profiles ({known}).")
    try:
        return Profile.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError("\n".join(registry.explain(error, Profile)) + f" (from {path})") from error

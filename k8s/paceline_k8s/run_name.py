"""The name of a run in a namespace: every part has it in front and as a label."""

import re
from typing import Any

import yaml

from paceline.core.errors import ConfigError, UsageError
from paceline_k8s.kubectl import PARTS, RUN, Kubectl

LONGEST = 32
"""A label of a pod says `<run>-paceline-evaluator-<checksum of 10>`, and has 63 characters at most."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
Document = dict[str, Any]


def check_name(name: str, told: str) -> None:
    """ConfigError where Kubernetes does not take it as the beginning of names. `told`: where it stands, like 'RUN'."""
    if len(name) > LONGEST or not _LABEL.fullmatch(name):
        raise ConfigError(
            f"{told}: got {name!r}. On Kubernetes a run's name has lower-case letters, digits and hyphens, begins with a "
            f"letter, ends with a letter or a digit, and has {LONGEST} characters at most."
        )


def runs_of(kubectl: Kubectl) -> list[str]:
    """All runs of the namespace that have parts, or volumes that stay of them."""
    found = kubectl.items("statefulsets,persistentvolumeclaims", f"{PARTS},{RUN}")
    return sorted({item["metadata"]["labels"][RUN] for item in found})


def the_run(kubectl: Kubectl, name: str = "", is_needed: bool = False) -> Kubectl:
    """The namespace with the run of this name, or with the only one that it has; where it has none and none is named, without
    a run, unless one is needed. UsageError says which there are."""
    if name:
        check_name(name, "RUN")
    there = runs_of(kubectl)
    if not name and len(there) > 1:
        raise UsageError(
            f"Namespace {kubectl.namespace} has {len(there)} runs: {', '.join(there)}. Say which: RUN=NAME (make), or "
            "--run NAME."
        )
    if name and name not in there:
        raise UsageError(
            f"There is no run {name} in namespace {kubectl.namespace}; it has {', '.join(there) or 'none'}. To start one: "
            f"make deploy OVERLAY=... (or CONFIG=...) RUN={name}."
        )
    if is_needed and not there:
        raise UsageError(f"There is no run in namespace {kubectl.namespace}. To start one: make deploy OVERLAY=demo.")
    return kubectl.of_run(name or next(iter(there), ""))


def rename(documents: list[Document], before: str, name: str) -> list[Document]:
    """The documents of an overlay as those of another run. `before`: the overlay's own name of its run."""
    front, new = f"{before}-", f"{name}-"
    own = {one["metadata"]["name"] for one in documents if one["metadata"]["name"].startswith(front)}

    def renamed(value: Any) -> Any:
        """With the names of parts, and the label of the run, wherever they stand; keys stay."""
        if isinstance(value, dict):
            return {key: name if (key, one) == (RUN, before) else renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one) for one in value]
        # Secrets are no documents
        is_own = isinstance(value, str) and (value in own or value.startswith(f"{front}paceline-"))
        return new + value.removeprefix(front) if is_own else value

    return [renamed(one) | _files(one, name) for one in documents]


def _files(document: Document, name: str) -> Document:
    """The data of a ConfigMap as they are, but for the run's name in its settings; nothing of other objects."""
    if document["kind"] != "ConfigMap":
        return {}
    data = document.get("data", {})
    run = yaml.safe_load(data["run.yaml"]) if "run.yaml" in data else None
    if isinstance(run, dict):
        data = {**data, "run.yaml": yaml.safe_dump({**run, "run": name}, sort_keys=False)}
    return {"data": data}

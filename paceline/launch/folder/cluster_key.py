"""A key to a run on a cluster, for machines outside of it: where its servers are, what they ask for, and the run's files."""

from pathlib import Path
from typing import Any, Self

import yaml

from paceline.base.bounded import read_text
from paceline.base.own_files import is_own
from paceline.core.errors import ConfigError, UsageError
from paceline.core.extension import Section
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.core.stored_format import check_format
from paceline.rpc.protocol_version import PROTOCOL
from paceline.settings.load_settings import parse_yaml

FORMAT = 1
MOST_BYTES = 16 << 20
"""Largest file of a key: a ConfigMap, which its files come from, has at most 1 MiB."""
SETTINGS, SCRIPT = "run.yaml", "script"
"""The run's settings, and the folder of its script, among a key's files."""
_AGAIN = "make one where kubectl works: paceline k8s key"


class ClusterKey(Section):
    """What the key's file holds. Anyone who has it can take part in the run."""

    format: int = FORMAT
    protocol: int = PROTOCOL
    """Of the release that has made it."""
    run: str
    servers: tuple[str, ...]
    """host:port of each in order, as others reach them."""
    shard_server: str = ""
    """The same of what streams shards; empty where a script brings its data, or where data.shards_at says where they are."""
    token: str
    """A token file, for any worker of the run."""
    authority: str
    certificate: str
    key: str
    """With these two a worker answers for itself, by the authority it checks the servers (PEM)."""
    files: dict[str, str]
    """By name: run.yaml, what lies next to it, and a script with its neighbours in the folder `script`."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """UsageError: the file is no key; TooNew: a newer release has made it."""
        try:
            found = parse_yaml(read_text(path, MOST_BYTES))
            if isinstance(found, dict) and "format" in found:
                check_format(f"The key {path}", found["format"], FORMAT, _AGAIN)
            return cls.model_validate(found)
        except (OSError, ValueError) as error:
            why = f" ({error.strerror})" if isinstance(error, OSError) else ""
            raise UsageError(
                f"{path} is no key of a run on Kubernetes{why}. Copy the whole file, or {_AGAIN}."
            ) from error

    def text(self) -> str:
        """The file's content."""
        first = f"# Lets a machine take part in run {self.run}: paceline join THIS-FILE. Keep it like a password.\n"
        return first + yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def settings(self) -> dict[str, Any]:
        """The run's, in which `task` is the place of a user's file among these files. ConfigError: it is not among them;
        UsageError: there are no settings."""
        try:
            found = parse_yaml(self.files.get(SETTINGS, ""))
        except ValueError as error:
            raise UsageError(f"The key's {SETTINGS} is not YAML: {error}. Copy the whole file, or {_AGAIN}.") from error
        if not isinstance(found, dict):
            raise UsageError(f"The key has no settings of the run ({SETTINGS}). Copy the whole file, or {_AGAIN}.")
        task = str(found.get("task", ""))
        if is_own(task):
            name = Path(task).name
            place = next((each for each in (f"{SCRIPT}/{name}", name) if each in self.files), None)
            if place is None:
                raise ConfigError(
                    f"{task} of run {self.run} is in no ConfigMap, so machines outside the cluster can't get it. Deploy it "
                    "with SCRIPT=, or next to run.yaml, instead of in an image."
                )
            found["task"] = place
        return found


def refusal(config: Config) -> str:
    """Why workers from outside the cluster can't take part in such a run, and what to do; empty where they can."""
    if not config.servers:
        return (
            "In a run without servers workers call one another, which none can do from outside the cluster: set servers "
            "to 1 or more, with a policy for servers."
        )
    if build_policy(config.policy).scores != ("global",):
        return (
            f"Under the policy {config.policy.name} the evaluator reads each worker's model, which it can't do outside the "
            "cluster: take another policy."
        )
    if config.data.source == "files" and config.data.shards_at is None:
        return (
            "Workers outside the cluster can't read its volume of shards: take the component data-server, and set "
            "data.source to server; or shards-in-bucket, with data.shards_at."
        )
    return ""

"""The name of a run in a namespace: every part has it in front and as a label."""

import re
from collections.abc import Callable
from typing import Any

import yaml

from paceline.core.errors import ConfigError, UsageError
from paceline.k8s.kubectl import PARTS, RUN, Kubectl

LONGEST = 36
"""Kubernetes puts a hash behind `<run>-paceline-server`, and all of it into a label of 63 characters."""
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
            f"make deploy OVERLAY=... RUN={name}."
        )
    if is_needed and not there:
        raise UsageError(f"There is no run in namespace {kubectl.namespace}. To start one: make deploy OVERLAY=demo.")
    return kubectl.of_run(name or next(iter(there), ""))


def rename(documents: list[Document], before: str, name: str) -> list[Document]:
    """The documents of an overlay as those of another run. `before`: the overlay's own name of its run."""
    front, new = f"{before}-", f"{name}-"
    own = {one["metadata"]["name"] for one in documents if one["metadata"]["name"].startswith(front)}

    def renamed(value: str) -> str:
        is_own = value in own or value.startswith(f"{front}paceline-")  # Secrets are no documents
        return new + value.removeprefix(front) if is_own else value

    found = []
    for document in documents:
        data = document.get("data") if document["kind"] == "ConfigMap" else None
        document = _each(document, renamed)
        if data is not None:
            document["data"] = _with_name(data, name)
        found.append(_labelled(document, before, name))
    return found


def _with_name(data: dict[str, str], name: str) -> dict[str, str]:
    """A ConfigMap's files, with the run's name in its settings."""
    run = yaml.safe_load(data["run.yaml"]) if "run.yaml" in data else None
    return (
        {**data, "run.yaml": yaml.safe_dump({**run, "run": name}, sort_keys=False)} if isinstance(run, dict) else data
    )


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """With all of its texts changed, but no keys."""
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_each(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def _labelled(value: Any, before: str, name: str) -> Any:
    """With the label of the run, wherever it is given or asked for."""
    if isinstance(value, dict):
        return {
            key: name if (key, one) == (RUN, before) else _labelled(one, before, name) for key, one in value.items()
        }
    return [_labelled(one, before, name) for one in value] if isinstance(value, list) else value

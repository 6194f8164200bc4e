"""An overlay as Kubernetes will get it: rendered, read, and checked against the run's settings."""

import itertools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paceline.base.own_files import is_own
from paceline.core.errors import ConfigError, UsageError
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.launch.folder.cluster_key import refusal
from paceline.settings.load_settings import read_yaml, task_of
from paceline.tasks.task import load_config
from paceline_k8s.cluster_status import has_tls
from paceline_k8s.kubectl import COMPONENT, RUN, Kubectl, containers
from paceline_k8s.observation import DEADLINE, deadline_text, pods_in
from paceline_k8s.profile import DEFAULT
from paceline_k8s.render import render
from paceline_k8s.run_name import check_name, rename
from paceline_k8s.script import put_script
from paceline_k8s.wanted import count_of

OVERLAYS = Path("k8s/overlays")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_IMAGE = re.compile(r"(?P<registry>.*/)?(?P<name>paceline-(server|worker|worker-slim|sharder)):(?P<tag>[^:@]+)")
"""One that `make images` builds, by a tag."""

_STAGES = {"network-policy": 0, "outside": 1, "tls": 2, "script": 3, "data": 4, "object-store": 4, "kueue": 5}
"""Components that change what others have, or are changed: each after those of a lower number."""


class Overlay(NamedTuple):
    """What to deploy."""

    documents: list[dict[str, Any]]
    config: Config

    @property
    def run(self) -> str:
        """The run's name."""
        return self.config.run or ""

    @property
    def pods(self) -> int:
        """How many there are while the run trains, with its sharder and without its controller."""
        return pods_in(self.documents, self.config)

    def find(self, kind: str, component: str) -> dict[str, Any] | None:
        """The object of that kind, as a part like 'worker' has one."""
        for found in self.documents:
            if found["kind"] == kind and found["metadata"].get("labels", {}).get(COMPONENT) == component:
                return found
        return None


class Changes(NamedTuple):
    """What a command puts in place of an overlay's own."""

    script: Path | None = None
    arguments: Sequence[str] = ()
    """The script's."""
    registry: str = ""
    """Where Paceline's images are, like 'registry.example/team'; '': where the overlay has them."""
    tag: str = ""
    """Their tag; '': the overlay's."""
    profile: str = ""
    """The platform's, for a run.yaml; '': the default one."""


AS_IT_IS = Changes()
"""The overlay's own."""


def read_overlay(kubectl: Kubectl, name: str, changes: Changes = AS_IT_IS) -> Overlay:
    """The overlay of that name in k8s/overlays, or in a folder, or the one that a run.yaml and a profile make, with these
    changes; all its parts are called by the run of `kubectl`, otherwise by that of run.yaml. Raises ConfigError, which lists
    what in it does not fit."""
    if kubectl.run_name:
        check_name(kubectl.run_name, "RUN")
    if Path(name).suffix in (".yaml", ".yml"):
        profile, script, arguments = changes.profile or DEFAULT, changes.script, changes.arguments
        documents = render(kubectl, Path(name), profile, kubectl.run_name, script, arguments)
        return _changed(kubectl, documents, Path(name), changes._replace(script=None, arguments=()))
    if changes.profile:
        raise UsageError(
            f"The overlay {name} has its own images and sizes, so it takes no profile. Leave out --profile (PROFILE=), or give "
            "a run.yaml (CONFIG=)."
        )
    folder = Path(name) if (Path(name) / "kustomization.yaml").is_file() else OVERLAYS / name
    if not (folder / "kustomization.yaml").is_file():
        known = ", ".join(sorted(path.parent.name for path in OVERLAYS.glob("*/kustomization.yaml"))) or "none here"
        raise ConfigError(f"There is no overlay '{name}'. Give the path of a folder, or one of k8s/overlays ({known}).")
    _check_order(folder)
    return _changed(kubectl, kubectl.kustomized(folder), folder, changes)


def _check_order(folder: Path) -> None:
    """Raises ConfigError if the order of components lets some of them change nothing, without a word."""
    listed = read_yaml(folder / "kustomization.yaml").get("components") or []
    known = [name for name in (Path(str(each)).name for each in listed) if name in _STAGES]
    for before, after in itertools.pairwise(known):
        if _STAGES[before] > _STAGES[after]:
            raise ConfigError(
                f"{folder}/kustomization.yaml lists the component {before} before {after}, which it would have to change: put "
                f"{after} first. docs/run/kubernetes-overlays.md#components has the order of all."
            )


def _changed(kubectl: Kubectl, documents: list[dict[str, Any]], folder: Path, changes: Changes) -> Overlay:
    """The overlay of these objects with the changes. `folder`: where they come from."""
    if changes.script is not None or changes.arguments:
        put_script(documents, folder, changes.script, changes.arguments)
    for container in (each for document in documents for each in containers(document)):
        container["image"] = _image(container["image"], changes)
    overlay = Overlay(documents, config_of(documents, folder))
    if wrong := list(_mistakes(overlay)):
        raise ConfigError(f"{folder} can't be deployed: " + " ".join(wrong))
    before, run = _label(overlay.find("StatefulSet", "server")), kubectl.run_name or overlay.run
    if before == run == overlay.run:
        return overlay
    documents = rename(documents, before, run)
    return Overlay(documents, config_of(documents, folder))


def _image(image: str, changes: Changes) -> str:
    """Returns the image from the registry, and by the tag, that the changes name; another one than Paceline's, or one by its
    digest, as it is."""
    found = _IMAGE.fullmatch(image)
    if found is None:
        return image
    registry = f"{changes.registry.rstrip('/')}/" if changes.registry else found["registry"] or ""
    return f"{registry}{found['name']}:{changes.tag or found['tag']}"


def config_of(documents: Sequence[dict[str, Any]], folder: Path | str) -> Config:
    """The settings in the overlay's ConfigMap."""
    files = settings_files(documents)
    if not files:
        raise ConfigError(f"The overlay {folder} has no ConfigMap with a run.yaml. Copy one of k8s/overlays.")
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            if not _KEY.fullmatch(name) or name in (".", ".."):
                raise ConfigError(
                    f"The overlay {folder} has a ConfigMap with the key {name!r}; Kubernetes takes only "
                    "letters, digits, '-', '_' and '.'. Rename the file."
                )
            if name == "run.yaml" or name.endswith(".py"):
                (Path(place) / name).write_text(content)
        return _read(Path(place) / "run.yaml")


def settings_files(documents: Sequence[dict[str, Any]]) -> dict[str, str]:
    """run.yaml and what lies next to it in its ConfigMap, as policies of users do; nothing where there is none."""
    for found in documents:
        if found["kind"] == "ConfigMap" and "run.yaml" in found.get("data", {}):
            return dict(found["data"])
    return {}


def _read(path: Path) -> Config:
    """The settings, with those of a task file that lies next to them, as pods read them."""
    name, _ = task_of(path)
    beside = path.parent / Path(name).name
    return load_config(path, {"task": str(beside)} if is_own(name) and beside.is_file() else None, own_file=False)


def _mistakes(overlay: Overlay) -> list[str]:
    """What must agree and does not."""
    config, wrong = overlay.config, []
    servers, workers = overlay.find("StatefulSet", "server"), overlay.find("StatefulSet", "worker")
    if servers is None or workers is None:
        return [
            "it lacks the StatefulSet paceline-server or the StatefulSet paceline-worker: is k8s/base among its resources?"
        ]
    if config.run is None:
        wrong.append("run.yaml has no 'run: NAME', by which a second deploy knows that it resumes.")
    else:
        check_name(config.run, "run.yaml has run")
    name, label = servers["metadata"]["name"], _label(servers)
    if name != f"{label}-paceline-server" or servers["spec"]["selector"]["matchLabels"].get(RUN) != label:
        wrong.append(
            f"kustomization.yaml calls the servers {name} and labels them {label or 'with no run'}: give it namePrefix: NAME- "
            f"and the label {RUN}: NAME with includeSelectors: true, where NAME is `run` of run.yaml."
        )
    if named := [
        one["metadata"]["name"]
        for one in overlay.documents
        if one["kind"] == "StatefulSet" and "replicas" in one["spec"]
    ]:
        wrong.append(
            f"kustomization.yaml has replicas of {', '.join(named)}: take them out. The numbers are `servers` and `workers` of "
            "run.yaml, and every apply would set yours again, also after the end of the run."
        )
    opened = any(is_open(each) for each in overlay.documents)
    if opened and (why := refusal(config)):
        wrong.append(f"The component outside does not go with this run. {why}")
    if opened and not has_tls(servers):
        wrong.append("The component outside needs the component tls, since others could read what is sent.")
    if config.is_script and has_tls(servers) and build_policy(config.policy).scores != ("global",):
        wrong.append(
            f"run.yaml has policy: {config.policy.name}, under which pods call workers by their addresses where a script "
            "trains, and certificates have names: leave out the component tls, or take another policy."
        )
    sharder = overlay.find("StatefulSet", "sharder")
    streams = sharder is not None and any("serve" in each.get("args", ()) for each in containers(sharder))
    if (config.data.source == "server") != streams:
        wrong.append(
            f"run.yaml has data: {{source: {config.data.source}}}; with the component data-server, and only with it, it is "
            "server."
        )
    at, claim = config.data.shards_at, overlay.find("PersistentVolumeClaim", "sharder")
    if sharder is not None and not streams and (at is None) != (claim is not None):
        wrong.append(
            f"run.yaml has data: {{shards_at: {at or 'null'}}}; with the component shards-in-bucket, and only with it, it is a "
            "URL like s3://bucket/folder."
        )
    seconds = "" if sharder is None else deadline_text(sharder)
    if seconds and count_of(seconds) is None:
        wrong.append(f'the pods of the sharder have {DEADLINE}: {seconds!r}; expected whole seconds, like "86400".')
    images = {container["image"] for document in overlay.documents for container in containers(document)}
    wrong += [
        f"the image {image} has no fixed tag: give it one under images."
        for image in sorted(images)
        if ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    ]
    return wrong


def is_open(document: dict[str, Any]) -> bool:
    """Whether it is of the component outside."""
    return document["kind"] == "Service" and "-paceline-outside-" in document["metadata"]["name"]


def _label(part: dict[str, Any] | None) -> str:
    """The run that its labels name."""
    return str((part or {}).get("metadata", {}).get("labels", {}).get(RUN, ""))

"""Renders the manifests of a run from its run.yaml and a profile: the components follow from the settings, in the one order
that works, and names and numbers are those of run.yaml alone."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from paceline.base.own_files import is_own
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.settings.load_settings import read_yaml
from paceline.settings.own_extensions import own_files
from paceline.tasks.data_path import is_local
from paceline.tasks.task import load_config
from paceline_k8s.kubectl import COMPONENT, RUN, Kubectl, containers, pod_spec
from paceline_k8s.observation import pods_in
from paceline_k8s.profile import Profile, read_profile
from paceline_k8s.queue import set_count
from paceline_k8s.run_name import check_name
from paceline_k8s.script import FOLDER, files_of

Document = dict[str, Any]
_HERE = Path(__file__).parent
_SETTINGS = Path("/etc/paceline")
"""Where pods have run.yaml, and the files next to it."""
_DATA = Path("/data")
_OF_DATA = re.compile(r"(^|=)/data(/|$)")
"""An argument of a script that names the claim of the input data."""
_ORDER = (
    *("data-server", "shards-in-bucket", "gpu", "spot", "network-policy", "outside", "tls"),
    *("script", "data", "object-store", "checkpoints-in-bucket", "kueue"),
)
"""Components that patch what others have added stand behind these; all others come last."""
_WITHIN = {"shards-in-bucket": ("object-store",)}
"""Components that contain others."""
_SECRETS = {
    "token": """kubectl create secret generic {name} --from-literal=token="$(openssl rand -hex 32)\"""",
    "tls": "a certificate, docs/run/kubernetes-security.md#tls",
    "store": "keys, unless a service account takes their place, docs/run/object-stores.md#on-kubernetes",
}
"""How to make those that a run needs."""
_CLAIMS = {"checkpoints": "checkpoints", "paceline-shards": "shards", "paceline-models": "models"}
"""The size in a profile of each claim, by its name without the run's."""


def render(
    kubectl: Kubectl,
    path: Path,
    profile: str,
    run: str = "",
    script: Path | None = None,
    arguments: Sequence[str] = (),
) -> list[Document]:
    """Returns all objects of the run. `path`: its run.yaml; `profile`: a name or a file; `run`, `script`, `arguments`:
    used instead of those in run.yaml. Raises ConfigError if the settings, the profile, or files that they name do not
    fit."""
    platform = read_profile(profile)
    written = read_yaml(path)
    own = _own_words(path, written, script, arguments)
    settings = written | own
    name = run or settings.get("run")
    if not name:
        raise ConfigError(
            f"{path} has no 'run: NAME', by which a second deploy knows that it resumes. Add it, or RUN=NAME."
        )
    check_name(str(name), "RUN" if run else f"{path} has run")

    with tempfile.TemporaryDirectory() as folder:
        config = load_config(path, own | _task_here(path, settings), own_file=False)
        settings |= {"run": name, **_task_in_pods(config)}
        # a file of which nothing changes keeps its comments
        text = path.read_text() if settings == written else yaml.safe_dump(settings, sort_keys=False)
        files = _put_files(Path(folder), text, config)
        kustomization = _kustomization(Path(folder), str(name), config, platform, files)
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization, sort_keys=False))
        documents = kubectl.kustomized(Path(folder))

    for document in documents:
        _fit(document, str(name), platform)
    set_count(documents, pods_in(documents, config))
    return documents


def text_of(documents: Sequence[Document], command: str) -> str:
    """Returns the objects as a file that people can read and compare, with the Secrets that they need in its first lines.
    `command`: what makes it."""
    pods = [pod_spec(document) for document in documents]
    named = {each["secret"]["secretName"] for pod in pods for each in pod.get("volumes", []) if "secret" in each}
    named |= {each["name"] for pod in pods for each in pod.get("imagePullSecrets", [])}
    lines = [f"# Made by `{command}`; don't edit it, make it again. Its namespace needs"]
    for name in sorted(named):
        made = _SECRETS.get(name.rpartition("-")[2], "yours")
        lines.append(f"#   the Secret {name}: {made.format(name=name)}")
    return "\n".join([*lines, ""]) + yaml.dump_all(documents, Dumper=_Readable, sort_keys=False, width=130)


def write(text: str, path: Path | None) -> None:
    """Writes the file, in place of one that was rendered before, or to the terminal. Raises UsageError if the file is
    another one, or can't be written."""
    if path is None:
        print(text, end="")
        return
    try:
        if path.exists() and not path.read_text().startswith("# Made by `paceline k8s render"):
            raise UsageError(f"--out {path}: the file exists, and was not rendered. Name another one.")
        path.write_text(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--out {path}: can't write it ({error}). Name another file.") from error


def _own_words(path: Path, written: Document, script: Path | None, arguments: Sequence[str]) -> Document:
    """The settings of a script and its arguments that a command names. `written`: what run.yaml says. Raises ConfigError if
    that runs no script."""
    own: Document = {} if script is None else {"task": str(script.resolve())}
    if arguments:
        own["arguments"] = list(arguments)
    if own and (written.get("data") or {}).get("source") != "script":
        raise ConfigError(
            f"{path} runs no script, so it takes neither SCRIPT nor ARGS: set `data: {{source: script}}` in it."
        )
    return own


def _task_here(path: Path, settings: Document) -> Document:
    """The task's file where it is on this machine, next to run.yaml or by its path; nothing if it is none of the user's, or
    one of the image. Raises ConfigError if neither has it."""
    task = str(settings.get("task", ""))
    if not is_own(task):
        return {}
    places = [place for place in (path.parent / task, Path(task)) if place.is_file()]
    if not places and not task.startswith("/"):
        raise ConfigError(
            f"{path} has task: {task}, and there is no such file, neither next to it nor here. Correct the path; one that "
            "begins with / may be of the image."
        )
    return {"task": str(places[0])} if places else {}


def _file_of_task(config: Config) -> Path | None:
    """The user's file that is trained; None if there is none on this machine."""
    return Path(config.task) if is_own(config.task) and Path(config.task).is_file() else None


def _task_in_pods(config: Config) -> Document:
    """The setting of the task with the path that its file has in pods; nothing if no file goes there."""
    task = _file_of_task(config)
    return {} if task is None else {"task": str((FOLDER if config.is_script else _SETTINGS) / task.name)}


def _put_files(folder: Path, settings: str, config: Config) -> dict[str, list[str]]:
    """Writes run.yaml, which holds these settings, and the user's files that it names; returns their names by ConfigMap."""
    own, task = own_files(config), _file_of_task(config)
    imported = files_of(task) if task is not None else {}
    script = imported if config.is_script else {}
    (folder / "run.yaml").write_text(settings)
    for file in own:
        shutil.copyfile(file, folder / file.name)
    for name, content in imported.items():
        (folder / name).write_text(content)
    beside = {file.name for file in own} | (set() if script else set(imported))
    found = {"paceline-config": ["run.yaml", *sorted(beside)]}
    return found | ({"paceline-script": sorted(script)} if script else {})


def _kustomization(folder: Path, run: str, config: Config, profile: Profile, files: dict[str, list[str]]) -> Document:
    """What kustomize makes the objects of."""
    chosen = {*profile.components, *_components(config), *(["kueue"] if profile.queue else [])}
    chosen -= {part for name in chosen for part in _WITHIN.get(name, ())}
    order = [name for name in _ORDER if name in chosen] + sorted(chosen - set(_ORDER))
    generated: list[Document] = [{"name": name, "files": names} for name, names in files.items()]
    if profile.queue:
        generated.append(
            {
                "name": "paceline-queue",
                "literals": [f"name={profile.queue}", "pods=0"],  # `set_count` knows better, once there are objects
                "options": {"annotations": {"config.kubernetes.io/local-config": "true"}},
            }
        )
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [_relative(folder, "base")],
        "components": [_relative(folder, f"components/{name}") for name in order],
        "namePrefix": f"{run}-",
        "labels": [
            {"pairs": {RUN: run}, "includeSelectors": True},
            {"pairs": {"app.kubernetes.io/part-of": "paceline"}, "includeTemplates": True},
            {"pairs": {"app.kubernetes.io/managed-by": "paceline", "app.kubernetes.io/version": version("paceline")}},
        ],
        "generatorOptions": {"immutable": True, "labels": {"app.kubernetes.io/name": "paceline"}},
        "configMapGenerator": generated,
        "patches": profile.patches,
    }


def _relative(folder: Path, name: str) -> str:
    """kustomize takes no absolute path of a folder."""
    return os.path.relpath((_HERE / name).resolve(), folder.resolve())


def _components(config: Config) -> Iterator[str]:
    """Those that the run's settings need. Raises ConfigError if its data lie where no pod sees them."""
    if config.models_at or (config.is_script and any("://" in argument for argument in config.arguments)):
        yield "object-store"
    if config.checkpoint.at:
        yield from ("object-store", "checkpoints-in-bucket")
    if config.is_script:
        yield "script"
        if any(_OF_DATA.search(argument) for argument in config.arguments):
            yield "data"
        return
    if config.data.source == "server":
        yield "data-server"
    if config.data.shards_at:
        yield "shards-in-bucket"
    for path in config.data.path.split(","):
        if "://" in path:
            yield "object-store"
        elif Path(path).is_relative_to(_DATA):
            yield "data"
        elif is_local(path, is_own(config.task)):
            raise ConfigError(
                f"run.yaml has data: {{path: {path}}}, which no pod sees. Copy it to the volume of the input data, `make "
                f"put-data DATA={path}`, and set the path to {_DATA / Path(path).name}."
            )


def _fit(document: Document, run: str, profile: Profile) -> None:
    """Puts in what the profile says."""
    spec = document.get("spec", {})
    claims = [document] if document["kind"] == "PersistentVolumeClaim" else spec.get("volumeClaimTemplates", [])
    for claim in claims:
        size = getattr(profile.storage, _CLAIMS.get(claim["metadata"]["name"].removeprefix(f"{run}-"), ""), None)
        if size:
            claim["spec"]["resources"]["requests"]["storage"] = size
        if profile.storage_class:
            claim["spec"]["storageClassName"] = profile.storage_class
        if profile.shared_storage and claim["metadata"]["name"] == f"{run}-paceline-shards":
            claim["spec"]["accessModes"] = ["ReadWriteMany"]
    if pod := pod_spec(document):
        _fit_pods(pod, document["metadata"]["labels"][COMPONENT], profile)

    by_name = {
        "paceline-server": profile.images.server,
        "paceline-worker": profile.images.worker,
        "paceline-sharder": profile.images.sharder,
    }
    for container in containers(document):
        container["image"] = by_name.get(container["image"], container["image"])


def _fit_pods(pod: Document, part: str, profile: Profile) -> None:
    """Puts in what the profile says of pods of that part."""
    if profile.pull_secret:
        pod["imagePullSecrets"] = [{"name": profile.pull_secret}]
    if profile.service_account and part != "controller":
        pod["serviceAccountName"] = profile.service_account
    if profile.priority_class and part in ("server", "evaluator", "sharder"):
        pod["priorityClassName"] = profile.priority_class
    if profile.tolerations:
        pod["tolerations"] = [*pod.get("tolerations", []), *profile.tolerations]
    if profile.node_selector and part == "worker":
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **profile.node_selector}

    amounts = profile.resources.get(part)  # type: ignore[call-overload]  # the controller has none
    if amounts is not None:
        resources = pod["containers"][0]["resources"]
        resources["requests"].update(amounts.requests)
        resources["limits"].update(amounts.limits)


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)

"""A training script of the user's in an overlay: its text becomes a ConfigMap, its name and arguments settings of the run."""

import ast
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from paceline.core.errors import ConfigError
from paceline_k8s.kubectl import pod_spec

SCRIPT, CONFIG = "paceline-script", "paceline-config"
FOLDER = Path("/script")
MOST = 1 << 20
"""What a ConfigMap takes (bytes)."""
_IMAGE = 'Make an image of it: docs/run/kubernetes.md, "More than a ConfigMap takes".'
Document = dict[str, Any]


def put_script(documents: list[Document], folder: Path, script: Path | None, arguments: Sequence[str]) -> None:
    """The overlay's documents with this script, None: its own, and these arguments, none: its own. ConfigError: the overlay
    runs no script, or the file does not fit."""
    config = _find(documents, CONFIG)
    run = yaml.safe_load(config["data"]["run.yaml"]) if config is not None else None
    if config is None or not isinstance(run, dict) or (run.get("data") or {}).get("source") != "script":
        raise ConfigError(
            f"The overlay {folder} runs no script, so it takes neither SCRIPT nor ARGS. Use OVERLAY=script, or a "
            "copy of that overlay."
        )
    if arguments:
        run["arguments"] = list(arguments)
    if script is not None:
        run["task"] = str(FOLDER / script.name)
        own = _find(documents, SCRIPT)
        if own is None:
            raise ConfigError(
                f"The overlay {folder} has no ConfigMap {SCRIPT} for SCRIPT. Copy the one of OVERLAY=script."
            )
        _replace(documents, own, SCRIPT, files_of(script))
    _replace(documents, config, CONFIG, {**config["data"], "run.yaml": yaml.safe_dump(run, sort_keys=False)})


def is_script(document: Document) -> bool:
    """Whether it is the ConfigMap of a script."""
    return document["kind"] == "ConfigMap" and SCRIPT in str(document["metadata"]["name"])


def script_of(part: Document) -> str:
    """The name of the ConfigMap that a part's script comes from, which changes with its content; '' where a task is trained."""
    names = [str(volume.get("configMap", {}).get("name", "")) for volume in pod_spec(part).get("volumes", [])]
    return next((name for name in names if SCRIPT in name), "")


def files_of(script: Path) -> dict[str, str]:
    """The script, and the files next to it that it imports, by name. ConfigError: one is no Python file, they are too large,
    or a folder is imported."""
    if script.suffix != ".py" or not script.is_file():
        raise ConfigError(f"There is no Python file {script}. Give the path of your training script (SCRIPT=).")
    found: dict[str, str] = {}
    left = [script]
    while left:
        file = left.pop()
        found[file.name], tree = _read(file)
        for name in sorted(_imported(tree)):
            beside = script.with_name(f"{name}.py")
            if beside.is_file() and beside.name not in found:
                left.append(beside)
            elif (script.with_name(name) / "__init__.py").is_file():
                raise ConfigError(f"{file} imports the folder {name}, and a ConfigMap has none. {_IMAGE}")
    if (size := sum(len(text.encode()) for text in found.values())) > MOST:
        raise ConfigError(f"{', '.join(found)}: {size:,} bytes, and a ConfigMap takes {MOST:,}. {_IMAGE}")
    return found


def _read(file: Path) -> tuple[str, ast.Module]:
    try:
        text = file.read_text(encoding="utf-8")
        return text, ast.parse(text, str(file))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} is not Python: {error}.") from error


def _imported(tree: ast.Module) -> set[str]:
    """The first words of all names that are imported."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _checksum(found: Any) -> str:
    """As long as kustomize's."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:10]


def _find(documents: list[Document], name: str) -> Document | None:
    """The ConfigMap that is called so, with the run's name in front and a checksum behind."""
    return next((one for one in documents if one["kind"] == "ConfigMap" and name in one["metadata"]["name"]), None)


def _replace(documents: list[Document], old: Document, name: str, data: dict[str, str]) -> None:
    """Other content, and a name that says so, as kustomize gives them: pods that mount it are made again."""
    before = old["metadata"]["name"]
    old["data"] = data
    front = before.partition(name)[0]
    old["metadata"]["name"] = f"{front}{name}-{_checksum(data)}"
    for document in documents:
        for volume in pod_spec(document).get("volumes", []):
            if volume.get("configMap", {}).get("name") == before:
                volume["configMap"]["name"] = old["metadata"]["name"]

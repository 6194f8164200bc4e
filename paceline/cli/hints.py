"""What to try after a run: a command that fits it and that starts, or nothing."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.callback import leaves
from paceline.cli.resume import home_of
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import PacelineError
from paceline.core.explain.cause import Finding
from paceline.core.settings.config import NAME, Config
from paceline.launch.folder.run_folder import RUNS, RunFolder
from paceline.launch.settings.read_config import read_config, read_launch
from paceline.settings.flags import Flags
from paceline.settings.load_settings import read_yaml

_FLAGS = {"workers": "-w", "servers": "-s", "epochs": "--epochs", "data": "--data", "policy": "--policy"}
"""Of `paceline run`, by their names in `Flags`."""
_LAUNCHED = {"workers": "-w", "servers": "-s", "policy": "--policy", "policy.name": "--policy"}
"""Of `paceline launch`, by their settings."""
_OF_A_SCRIPT = ("task", "data.source", "arguments", "run")
"""What a script's command says otherwise."""
_FOUND, _UNEVEN = 0.25, 0.6
"""Recall below which a class is hardly found, and share of the largest one from which on another is rare (ratios)."""


def next_lines(
    config: Config,
    folder: RunFolder,
    warnings: Sequence[RunWarning],
    metrics: Mapping[str, float] | None = None,
    causes: Sequence[Finding] = (),
) -> list[str]:
    """The line that proposes it; none where there is nothing to propose. `warnings`: those left at the end; `metrics`:
    the final scores; `causes`: what made it slow."""
    tried = [each.settings for each in warnings] + [list(each.advice.settings) for each in causes]
    found = _repair(config, folder, tried) if tried else _weights(config, folder, metrics or {})
    return [f"Next, {found}"] if found else []


def _repair(config: Config, folder: RunFolder, tried: Sequence[list[str]]) -> str:
    """The first settings to try that there are."""
    settings = next((each for each in tried if each), [])
    command = _command(config, folder, settings) if settings else ""
    return f"try {' '.join(settings)}: {command}" if command else ""


def _weights(config: Config, folder: RunFolder, metrics: Mapping[str, float]) -> str:
    """Class weights where a linear model hardly finds a class that is rare."""
    if config.updates != "sparse" or config.svm.class_weights is not None or not _misses(metrics):
        return ""
    command = _command(config, folder, ["svm.class_weights=balanced"])
    return f"see whether class weights find more of the rare class: {command}" if command else ""


def _misses(metrics: Mapping[str, float]) -> bool:
    """Whether a linear model finds few of a class that is rare."""
    split = "validation" if "validation_recall" in metrics else "test"
    recall, majority = metrics.get(f"{split}_recall", 1.0), metrics.get(f"{split}_majority", 0.0)
    return recall < _FOUND and majority > _UNEVEN


def _command(config: Config, folder: RunFolder, sets: Sequence[str]) -> str:
    """The run's command with other settings; empty where these are refused."""
    if config.is_script:
        return _launch(config, folder, sets)
    flags = _short(config)
    what, flags = (str(folder.config), {"run": _free(folder)}) if flags is None else (config.task, flags)
    if _read(what, **flags, sets=sets) is None:
        return ""
    words = [word for each in sets for word in ("--set", each)]
    return f"paceline run {' '.join([_words(what, flags), *map(shlex.quote, words)])}"


def _launch(config: Config, folder: RunFolder, sets: Sequence[str]) -> str:
    """The command that launches the run's script with other settings, without running it; empty where these are refused."""
    given = read_yaml(folder.first_settings) if folder.first_settings.exists() else {}
    known = {key: value for key, value in leaves(given) if key not in _OF_A_SCRIPT}
    if any(each.startswith("policy=") for each in sets):
        known = {key: value for key, value in known.items() if key.partition(".")[0] != "policy"}
    said = {key: f"{key}={json.dumps(value)}" for key, value in known.items()}
    try:
        read_launch(config.task, config.arguments, Flags(sets=[*said.values(), *sets]))
    except PacelineError:
        return ""
    words = [word for key, flag in _LAUNCHED.items() if key in known for word in (flag, str(known[key]))]
    pairs = [*(pair for key, pair in said.items() if key not in _LAUNCHED), *sets]
    words += [word for each in pairs for word in ("--set", each)]
    return f"paceline launch {shlex.join([*words, config.task, *config.arguments])}"


def _short(config: Config) -> dict[str, Any] | None:
    """The flags that make this config of its task; None where it takes more than a few flags."""
    data = {} if config.data.path == "bundled" else {"data": config.data.path}
    base = _read(config.task, **data)
    if base is None:
        return None
    flags = data | {
        key: getattr(config, key)
        for key in ("workers", "servers", "epochs")
        if getattr(config, key) != getattr(base, key)
    }
    if config.policy != base.policy:
        flags["policy"] = config.policy.name
    found = _read(config.task, **flags)
    return flags if found is not None and found.model_copy(update={"run": config.run}) == config else None


def _read(what: str, **flags: Any) -> Config | None:
    """What a command line would make; None where it would be refused."""
    try:
        return read_config(what, Flags(**flags))
    except PacelineError:
        return None


def _words(what: str, flags: Mapping[str, Any]) -> str:
    named = _FLAGS | {"run": "--run"}
    return shlex.join([what, *(word for key, value in flags.items() for word in (named[key], str(value)))])


def _free(folder: RunFolder) -> str:
    """A name for another run of its settings: one that is named goes to the `runs` that the settings' paths count from,
    wherever this one lies."""
    runs, number = home_of(folder) / RUNS, 2
    while (runs / f"{folder.name}-{number}").exists():
        number += 1
    name = f"{folder.name}-{number}"
    return name if NAME.fullmatch(name) else f"again-{number}"

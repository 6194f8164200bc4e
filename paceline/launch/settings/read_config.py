"""From the words of a command line to a checked config."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.variables import TLS
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.core.settings.slow import CLUSTERS
from paceline.launch.folder.run_folder import RUNS, RunFolder
from paceline.launch.settings.check_script import check_script
from paceline.launch.settings.loggers import check_loggers
from paceline.launch.this_machine.cpu_cores import processes_here
from paceline.settings.load_settings import given, load, parse_sets, read_yaml
from paceline.settings.own_extensions import KEPT, check_own

ENDINGS = (".yaml", ".yml")
MISSING = "Missing argument 'TASK|CONFIG.yaml': a task like digits or a YAML file; or give --preset NAME."


def read_config(
    what: str | None,
    *,
    workers: int | None = None,
    servers: int | None = None,
    policy: str | None = None,
    sets: Sequence[str] = (),
    slow: Sequence[str] = (),
    faults: Sequence[str] = (),
    epochs: int | None = None,
    data: str | None = None,
    run: str | None = None,
    preset: str | None = None,
    log: Sequence[str] = (),
) -> Config:
    """The config of a task or a YAML file, or of a preset alone, and the flags; `sets` win over the other flags."""
    if what is None and preset is None:
        raise UsageError(MISSING)
    path = Path(what) if what is not None and what.endswith(ENDINGS) else None
    pairs = [] if what is None or path else [_pair("task", what)]
    flags = {
        "workers": workers,
        "servers": servers,
        "policy": policy,
        "epochs": epochs,
        "data.path": data,
        "run": run,
    }
    pairs += [_pair(key, value) for key, value in flags.items() if value is not None]
    pairs += [*_slow_pairs(slow), *_list_pairs("faults", faults), *_list_pairs("loggers", log)]
    try:
        return complete(parse_sets([*pairs, *sets]), path, preset)
    except ConfigError as error:
        folder = RunFolder(RUNS / (run or ""))
        if any(f"{file.name}: there is no such file" in str(error) for file in folder.path.glob(f"{KEPT}/*.py")):
            hint = f"Run '{run}' has a copy; it goes on with that by: paceline run {folder.config}"
            raise ConfigError(f"{error} {hint}") from error
        raise


def read_launch(
    script: str,
    arguments: Sequence[str],
    *,
    workers: int | None = None,
    servers: int | None = None,
    policy: str | None = None,
    sets: Sequence[str] = (),
    slow: Sequence[str] = (),
    faults: Sequence[str] = (),
    run: str | None = None,
    log: Sequence[str] = (),
    fresh: bool = False,
) -> tuple[Config, dict[str, Any]]:
    """The config of a script's run, as far as it is known before the script describes it, and all that was given of it: now,
    or when the run of that name was begun (not if it is to start `fresh`). ConfigError where there is no such script, or it
    can't be read as Python."""
    if not script.endswith(".py") or not Path(script).is_file():
        raise ConfigError(f"There is no Python file {script}. Give the path of your training script, like train.py.")
    check_script(Path(script))
    begun = RunFolder(RUNS / run).given if run and not fresh else None
    before = read_yaml(begun) if begun and begun.exists() else {}
    flags = {"workers": workers, "servers": servers, "policy": policy, "run": run}
    pairs = [_pair("task", script), _pair("data.source", "script")]
    pairs += [_pair("arguments", list(arguments))] if arguments or not before else []
    pairs += [_pair(key, value) for key, value in flags.items() if value is not None]
    pairs += [*_slow_pairs(slow), *_list_pairs("faults", faults), *_list_pairs("loggers", log)]
    overrides = parse_sets([*pairs, *sets])
    below = {"workers": processes_here(), **before}
    config = load(None, overrides, below)
    check_own(config)
    check_loggers(config)
    return config, given(overrides, below=below)


def reader_of(
    what: str | None,
    workers: int | None,
    servers: int | None,
    policy: str | None,
    sets: Sequence[str],
    epochs: int | None,
    data: str | None,
    preset: str | None,
) -> Callable[[Sequence[str]], Config]:
    """`read_config` with further settings on top, those of one point of a search, say."""

    def read(more: Sequence[str]) -> Config:
        return read_config(
            what,
            workers=workers,
            servers=servers,
            policy=policy,
            sets=[*sets, *more],
            epochs=epochs,
            data=data,
            preset=preset,
        )

    return read


def anew(settings: Mapping[str, Any], workers: int | None, sets: Sequence[str], data: str | None) -> Config:
    """The config for shards that are dealt again; `settings`: those that they were made with."""
    flags = {"workers": workers, "data.path": data}
    pairs = [_pair(key, value) for key, value in flags.items() if value is not None]
    return load(None, parse_sets([*pairs, *sets]), settings)


def complete(overrides: Mapping[str, Any], path: Path | None = None, preset: str | None = None) -> Config:
    """The config with the task's own defaults below all else: two steps, because its name is among the settings."""
    from paceline.tasks.task import load_config

    config = load_config(path, overrides, preset)
    check_own(config)
    check_loggers(config)
    return config


def _pair(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"  # JSON is YAML, so no value is misread


def _slow_pairs(texts: Sequence[str]) -> list[str]:
    if len(texts) == 1 and texts[0].lower() in CLUSTERS:
        return [_pair("slow", texts[0])]
    found = [text.partition("=") for text in texts]
    for text, (who, equals, _) in zip(texts, found, strict=True):
        if not equals or "." in who:
            raise UsageError(
                f"--slow {text}: expected a worker's number (or 'all') and how slow, like 2=10x or all=10x@5%, or "
                f"only one of these names: {', '.join(CLUSTERS)}."
            )
    return [_pair(f"slow.{who}", how) for who, _, how in found]


def _list_pairs(key: str, texts: Sequence[str]) -> list[str]:
    return [_pair(key, list(texts))] if texts else []


def use_keys(folder: Path) -> None:
    """Lets this process and all it starts speak TLS with the keys in the folder. ConfigError: they are no good."""
    from paceline.rpc.auth import read_credentials

    read_credentials(None, folder)
    os.environ[TLS] = str(folder.resolve())

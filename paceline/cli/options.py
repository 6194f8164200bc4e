"""From the words of a command line to a checked config."""

import json
from collections.abc import Sequence
from pathlib import Path

from paceline.core.config import Config
from paceline.core.errors import UsageError
from paceline.core.policy import from_shorthand
from paceline.settings import load, parse_sets

ENDINGS = (".yaml", ".yml")


def read_config(
    what: str,
    workers: int | None = None,
    servers: int | None = None,
    policy: str | None = None,
    sets: Sequence[str] = (),
    slow: Sequence[str] = (),
    epochs: int | None = None,
    data: str | None = None,
    run: str | None = None,
) -> Config:
    """The config of a task or a YAML file and the flags; `sets` win over the other flags. Two steps, because the task's
    own defaults lie below all of these, and its name is among them."""
    is_file = what.endswith(ENDINGS)
    pairs = [] if is_file else [_pair("task", what)]
    flags = {"workers": workers, "servers": servers, "epochs": epochs, "data.path": data, "run": run}
    pairs += [_pair(key, value) for key, value in flags.items() if value is not None]
    if policy is not None:
        options = from_shorthand(policy)
        pairs += [f"policy.{key}={value}" for key, value in options.items()]
    pairs += [_slow_pair(text) for text in slow]
    overrides = parse_sets([*pairs, *sets])
    path = Path(what) if is_file else None
    config = load(path, overrides)
    from paceline.tasks.task import load_task

    return load(path, overrides, load_task(config.task).settings)


def _pair(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"  # JSON is YAML, so no value is misread


def _slow_pair(text: str) -> str:
    who, equals, how = text.partition("=")
    if not equals or "." in who:
        raise UsageError(
            f"--slow {text}: expected a worker's number (or 'all') and how slow, like 2=10x or all=10x@5%."
        )
    return _pair(f"slow.{who}", how)

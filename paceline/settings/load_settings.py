"""Builds the config once, at the edge: defaults, then the task's own, a preset, the YAML file, PACELINE_* variables and
flags."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paceline.base.bounded import read_text
from paceline.base.variables import CONNECT, KEY, NOTICE, PREFIX, TLS
from paceline.core import registry
from paceline.core.errors import ConfigError, UsageError
from paceline.core.peers.peer_run import chosen_by
from paceline.core.policies.policy import from_shorthand
from paceline.core.setting_rules.check_rules import check
from paceline.core.settings.config import Config, named
from paceline.settings.own_extensions import OWN
from paceline.settings.presets import PRESETS, presets

_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is installed: every process of a run reads the settings, and Python's own takes ten times as
long."""
MOST_BYTES = 1 << 20
"""Largest file of settings (bytes)."""
_MOST_VALUES = 100_000
"""Most that a YAML text may say, its aliases written out: ten lines of them stand for billions."""
_DEEPEST = 100
_BY_NAME = ("policy", "optimizer", "schedule", "strategy", "engine", "push", "pull")
"""Sections that may be written as a name alone: `optimizer: adam`."""


def load(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    preset: str | None = None,
) -> Config:
    """The config from a file, the environment and flags (each wins over those before it); `task` are the task's own
    defaults, which lie below all, then comes the preset of that name. ConfigError lists every mistake with its key, and
    the nearest known key for a typo."""
    try:
        config = Config.model_validate(_on_top(path, overrides, task, preset))
    except ValidationError as error:
        where = f" (from {path})" if path else ""
        raise ConfigError("\n".join(registry.explain(error, Config)) + where) from error
    check(config, chosen_by(config))
    OWN.close(config)
    return config


def whole(values: Mapping[str, Any]) -> Config:
    """The config of all its values, which another process has read here and checked: nothing lies on top of them."""
    OWN.open(None)
    config = Config.model_validate(values)
    OWN.close(config)
    return config


def task_of(
    path: Path | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None
) -> tuple[str, str | None]:
    """The task and the model that `load` would find, for their own defaults, before anything is checked."""
    found = _on_top(path, overrides, None, preset)
    return str(found.get("task", Config().task)), found.get("model")


def is_script(path: Path | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None) -> bool:
    """Whether what `load` would find is a script of the user's own, which is no task file."""
    data = _on_top(path, overrides, None, preset).get("data")
    return isinstance(data, Mapping) and data.get("source") == "script"


def _on_top(
    path: Path | None, overrides: Mapping[str, Any] | None, task: Mapping[str, Any] | None, preset: str | None
) -> dict[str, Any]:
    """All sources on top of one another."""
    OWN.open(path.parent if path else None)
    found: dict[str, Any] = {
        "optimizer": Config().optimizer.model_dump(),
        "data": {"strategy": {"name": "random"}, "engine": {"name": "local"}},
        "schedule": {},
    }
    sources = (task or {}, *_sources(path, overrides, preset))
    if any("policy" in source for source in sources):
        found["policy"] = {"name": "ssp"}  # whose options may be said without a name
    for source in sources:
        found = merged(found, source)
    return found


def settings_above(
    overrides: Mapping[str, Any] | None,
    path: Path | None = None,
    preset: str | None = None,
    below: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What preset, file, environment and flags say, on top of one another and of `below`, and nothing of the defaults."""
    found: dict[str, Any] = {}
    for source in (below or {}, *_sources(path, overrides, preset)):
        found = merged(found, source)
    return found


def _sources(
    path: Path | None, overrides: Mapping[str, Any] | None, preset: str | None
) -> tuple[Mapping[str, Any], ...]:
    """What lies above a task's own settings, the lowest first."""
    named = read_preset(preset) if preset is not None else {}
    return named, read_yaml(path) if path else {}, _environment(), overrides or {}


def read_preset(name: str) -> dict[str, Any]:
    """A preset's settings; ConfigError names the nearest one for a typo."""
    known = presets()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"There is no '{name}' among the presets: {', '.join(known)}.{hint}")
    return read_yaml(PRESETS / f"{name}.yaml")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping; ConfigError says what the file holds instead."""
    try:
        found = parse_yaml(read_text(path, MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"Can't read the config {path}: {error.strerror}. Give the path of a YAML file.") from error
    except ValueError as error:
        raise ConfigError(f"The config {path} is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"The config {path} holds {type(found).__name__}; expected keys like 'task: digits'.")
    return found


def parse_yaml(text: str) -> Any:
    """What a YAML text says. ValueError: it is none, or says more than `_MOST_VALUES`."""
    try:
        _check_depth(_LOADER(text))
        loader = _LOADER(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except MemoryError:
        raise
    except Exception as error:  # a date in month 13, and others that the library lets through
        raise ValueError(str(error) or type(error).__name__) from error


def _check_depth(loader: Any) -> None:
    """ValueError: values lie too deep in one another; where that is 100,000 deep, the library's recursion ends the process."""
    depth = 0
    while (event := loader.get_event()) is not None and not isinstance(event, yaml.StreamEndEvent):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"lists and mappings lie more than {_DEEPEST} deep in one another")


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, its aliases written out. `known`: those of nodes that were counted; 0: not yet."""
    if (count := known.get(id(node))) is not None:
        if not count:
            raise ValueError("an alias stands for what it is a part of")
        return count
    known[id(node)] = 0
    parts: list[Any] = [] if isinstance(node, yaml.ScalarNode) else node.value
    if isinstance(node, yaml.MappingNode):
        parts = [each for pair in parts for each in pair]
    count = 1 + sum(_count(part, known) for part in parts)
    if count > _MOST_VALUES:
        raise ValueError(f"it says more than {_MOST_VALUES:,} values; write no such large lists, and fewer aliases")
    known[id(node)] = count
    return count


def write_yaml(config: Config, path: Path) -> None:
    """Saves the config so that `load(path)` gives it back."""
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def parse_sets(pairs: list[str]) -> dict[str, Any]:
    """['policy.bound=3'] as {'policy': {'bound': 3}}; values are read as YAML."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not all(key.split(".")):
            raise UsageError(f"--set {pair}: expected key=value, like policy.bound=3.")
        try:
            leaf: Any = parse_yaml(value)
        except ValueError as error:
            raise UsageError(f"--set {pair}: can't read the value: {error}") from error
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        found = merged(found, leaf)
    return found


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """'policy.bound: 3 before, 5 now' for each key that is not the same."""
    found = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}: {old!r} before, {new!r} now")
    return found


def variables() -> list[str]:
    """The names of the PACELINE_* variables that say settings."""
    return [name for name in os.environ if name.upper().startswith(PREFIX) and name not in (CONNECT, KEY, NOTICE, TLS)]


def _environment() -> dict[str, Any]:
    """What PACELINE_* variables say. Most processes have none, and are spared the library that reads them."""
    if not variables():
        return {}
    from paceline.settings.environment_settings import environment_settings

    return environment_settings(lambda field, text: _section(field, text) if field in _BY_NAME else None)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings joined, `above` winning; a section that gets another `name` starts from scratch."""
    joined = dict(below)
    for key, value in above.items():
        old = joined.get(key)
        if key in _BY_NAME and isinstance(old, Mapping) != isinstance(value, Mapping):
            old, value = _section(key, old), _section(key, value)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and _same_name(old, value):
            joined[key] = merged(old, value)
        else:
            joined[key] = value
    return joined


def _section(key: str, value: Any) -> Any:
    """'adam', or 'ssp:3' of a policy, as the section that it stands for."""
    if key == "policy" and isinstance(value, str):
        try:
            return {option: parse_yaml(text) for option, text in from_shorthand(value).items()}
        except ValueError as error:
            raise ConfigError(f"policy {value}: can't read the value after ':': {error}") from error
    return named(value)


def _same_name(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """Whether both speak of one extension; where one of them has no name, they do."""
    return bool(above.get("name", below.get("name")) == below.get("name", above.get("name")))

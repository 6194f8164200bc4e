"""What a worker and the servers must have set alike, files of users too, so that Join can compare it."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.settings.own_extensions import OWN, own_names

_SHARED = (
    "task",
    "model",
    "workers",
    "servers",
    "policy",
    "optimizer",
    "schedule",
    "plan",
    "codec",
    "epochs",
    "budget",
    "batch_size",
    "batch",
    "seed",
    "updates",
    "svm",
)


def agreed_settings(config: Config) -> list[str]:
    """'key=value' for every setting that all processes of a run share. A user's file is known by its name without a
    folder: it may have been moved, as the run's folder with a copy of it may."""
    return _lines(config, config.model_dump(mode="json", include=set(_SHARED)))


def joining_settings(config: Config) -> list[str]:
    """The same with what is in the users' files of policies and the like, by digest; a run that is resumed may have changed
    them, so what a server keeps does not say it. ConfigError where one can't be loaded."""
    digests = [f"{key}.file={Path(name).name} of SHA-256 {OWN.digest(name)[:16]}" for key, name in _own(config).items()]
    return [*agreed_settings(config), *digests]


def agreed_defaults(config: Config) -> set[str]:
    """Those among them that are as they come: what an earlier release does not name was so."""
    given = config.model_dump(mode="json", include=set(_SHARED), exclude_defaults=True)
    return set(agreed_settings(config)) - set(_lines(config, given))


def changed_settings(before: Collection[str], now: Collection[str]) -> list[str]:
    """The lines that differ, sorted; none where the run only has more epochs than before, and servers that keep its model, so
    that it can go on."""
    differing = sorted(set(before) ^ set(now))
    old, new = _values(before), _values(now)
    only_epochs = {line.partition("=")[0] for line in differing} == {"epochs"}
    can_go_on = only_epochs and int(new["epochs"]) > int(old["epochs"]) and new.get("servers") != "0"
    return [] if can_go_on else differing


def has_more_epochs(before: Config, now: Config) -> bool:
    """Whether this is the same run with more epochs, with which it can go on."""
    is_same = not changed_settings(agreed_settings(before), agreed_settings(now))
    return is_same and now.epochs > before.epochs and not now.is_script


def _values(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines)


def _lines(config: Config, values: dict[str, Any]) -> list[str]:
    shared = {key: values[key] for key in _SHARED if key in values} | {"task": Path(config.task).name}
    leaves = dict(_leaves(shared)) | {f"{key}.name": Path(name).name for key, name in _own(config).items()}
    return [*(f"{key}={value}" for key, value in leaves.items()), f"data.access={config.data.access}"]


def _own(config: Config) -> dict[str, str]:
    """Users' files among what is shared, by the key."""
    return {key: name for key, name in own_names(config).items() if key.partition(".")[0] in _SHARED}


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

"""What a worker and the servers must have set alike, so that Join can compare it."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from paceline.core.settings.config import Config

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
    """'key=value' for every setting that all processes of a run share. A task's file goes by its name: it may have been moved,
    as the run's folder with a copy of it may."""
    return _lines(config, config.model_dump(mode="json", include=set(_SHARED)))


def agreed_defaults(config: Config) -> set[str]:
    """Those among them that are as they come: what an earlier release does not name was so."""
    given = config.model_dump(mode="json", include=set(_SHARED), exclude_defaults=True)
    return set(agreed_settings(config)) - set(_lines(config, given))


def _lines(config: Config, values: dict[str, Any]) -> list[str]:
    shared = {key: values[key] for key in _SHARED if key in values} | {"task": PurePath(config.task).name}
    return [*_leaves(shared), f"data.access={config.data.access}"]


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={value}"

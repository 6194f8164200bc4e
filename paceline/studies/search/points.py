"""The points of a search with the settings of their runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.studies.search.grid import Grid, pairs, told


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the grid's values."""

    number: int
    values: dict[str, Any]
    configs: list[Config]
    """Of its run, or of one run for each fold; `run` is the run's name."""


def points_of(
    grid: Grid, read: Callable[[Sequence[str]], Config], folds: int | None, epochs: int | None = None
) -> list[Point]:
    """All points with checked configs; `epochs` replaces their own setting. ConfigError names the point whose settings
    are wrong; UsageError: folds twice."""
    if folds and "data.fold" in grid.values:
        raise UsageError(f"--grid data.fold and --folds {folds}: both choose the test part; leave one of them out.")
    return [point_of(number, values, read, folds, epochs) for number, values in enumerate(grid.points(), 1)]


def point_of(
    number: int,
    values: Mapping[str, Any],
    read: Callable[[Sequence[str]], Config],
    folds: int | None,
    epochs: int | None = None,
) -> Point:
    """One point with checked configs; ConfigError names it where its settings are wrong."""
    parts = [[f"data.fold=[{part}, {folds}]"] for part in range(folds)] if folds else [[]]
    name = f"point-{number}" if epochs is None else f"point-{number}-epochs-{epochs}"
    names = [f"{name}-fold-{part}" for part in range(folds)] if folds else [name]
    short = [] if epochs is None else [f"epochs={epochs}"]
    try:
        configs = [read([*pairs(values), *part, *short]) for part in parts]
    except ConfigError as error:
        short_round = "" if epochs is None else f", in a round of --halving, where epochs is {epochs}"
        raise ConfigError(f"point {number} ({told(values)}){short_round}: {error}") from error
    return Point(
        number, dict(values), [one.model_copy(update={"run": name}) for one, name in zip(configs, names, strict=True)]
    )

"""Points drawn from values and ranges, instead of every combination. Optuna has the samplers."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paceline.base.extras import needing
from paceline.core.errors import UsageError
from paceline.studies.search.grid import Grid, Guided, Range

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SAMPLERS = ("random", "tpe")
TRIES = 100
"""Draws for one point until it is none of those before."""


def sampled(grid: Grid, how: str | None, points: int | None, seed: int | None) -> Grid:
    """With points drawn from it, the same ones for the same arguments, or guided where results choose the points;
    as it is where nothing asks for that. UsageError where options don't go together, or the grid has fewer points;
    ConfigError where Optuna is not installed."""
    ranges = [f"{key}={each}" for key, values in grid.values.items() for each in values if isinstance(each, Range)]
    if how is None:
        given = [f"--{name} {value}" for name, value in (("points", points), ("seed", seed)) if value is not None]
        if given or ranges:
            what = given[0] if given else f"--grid {ranges[0]}"
            raise UsageError(f"{what} is for a sample: add --sample random. A run's own seed is --set seed=N.")
        return grid
    if how not in SAMPLERS:
        raise UsageError(f"--sample {how}: expected {' or '.join(SAMPLERS)}.")
    if points is None:
        raise UsageError(f"--sample {how}: how many points shall it draw? Add --points 20.")
    whole = grid.size
    if whole is not None and points >= whole:
        raise UsageError(f"--points {points}: the grid has {whole} points; draw fewer, or leave --sample out.")
    with needing("--sample"):
        drawn = tuple(_drawn(grid, points, seed or 0))
    return replace(grid, drawn=drawn) if how == "random" else replace(grid, drawn=(), guided=Guided(points, seed or 0))


def space(grid: Grid) -> "dict[str, BaseDistribution]":
    """The grid in Optuna's words: a list by places, in order where it has numbers that rise or fall."""
    return {key: _distribution(values) for key, values in grid.values.items()}


def point_of(grid: Grid, params: Mapping[str, Any]) -> dict[str, Any]:
    """The point that these parameters of the space stand for."""
    return {key: _value(params[key], values) for key, values in grid.values.items()}


def _drawn(grid: Grid, points: int, seed: int) -> list[dict[str, Any]]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if grid.size is None:
        sampler = optuna.samplers.RandomSampler(seed)
    else:
        places = {key: range(len(values)) for key, values in grid.values.items()}
        sampler = optuna.samplers.GridSampler(places, seed)  # which takes none twice
    study, within = optuna.create_study(sampler=sampler), space(grid)
    found: list[dict[str, Any]] = []
    for _ in itertools.repeat(None, points * TRIES):
        trial = study.ask(within)
        study.tell(trial, 0.0)
        point = point_of(grid, trial.params)
        if point not in found:
            found.append(point)
        if len(found) == points:
            return found
    raise UsageError(f"--points {points}: the ranges have only {len(found)} different points; draw fewer.")


def _distribution(values: list[Any]) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    only = values[0]
    if isinstance(only, Range):
        if only.is_whole:
            return IntDistribution(int(only.low), int(only.high), log=only.log)
        return FloatDistribution(only.low, only.high, log=only.log)
    are_numbers = len(values) > 1 and all(type(each) in (int, float) for each in values)
    if are_numbers and sorted(values) in (values, values[::-1]):
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(list(range(len(values))))


def _value(param: Any, values: list[Any]) -> Any:
    only = values[0]
    if not isinstance(only, Range):
        return values[param]
    return param if only.is_whole else min(max(float(f"{param:.6g}"), only.low), only.high)

"""Points that are chosen by what those before gave: the tree-structured Parzen estimator of Optuna.

Source: Bergstra, Bardenet, Bengio and Kegl 2011, "Algorithms for Hyper-Parameter Optimization". The first points are drawn at
random. Nothing is kept between two calls, so a search that goes on chooses as one that was never ended."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.studies.search.grid import Grid, Range
from paceline.studies.search.sampling import TRIES, point_of, space

AT_RANDOM = 10
"""Points before the first one that is chosen; Optuna's default."""

Known = tuple[Mapping[str, Any], float]
"""A point, and what the search makes small; infinity where it failed."""


def chosen(
    grid: Grid, seed: int, known: Sequence[Known], count: int, allowed: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Up to `count` points that are allowed and not known, to be tried at the same time; fewer where there are hardly any
    more. The same arguments give the same points. Needs Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    within, state = space(grid), int(np.random.SeedSequence([seed, len(known)]).generate_state(1)[0])
    by_results = optuna.samplers.TPESampler(seed=state, n_startup_trials=AT_RANDOM, constant_liar=True)
    study = optuna.create_study(sampler=by_results)
    for point, score in known:
        params = {key: _param(point[key], values) for key, values in grid.values.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=within, value=score))
    found: list[dict[str, Any]] = []
    seen = [dict(point) for point, _ in known]
    for tried in range(2 * TRIES * count):
        if tried == TRIES * count:  # what it likes best is done; any other point will do
            study.sampler = optuna.samplers.RandomSampler(state)
        trial = study.ask(within)
        point = point_of(grid, trial.params)
        if point in seen or not allowed(point):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        found.append(point)
        seen.append(point)
        if len(found) == count:
            break
    return found


def _param(value: Any, values: list[Any]) -> Any:
    return value if isinstance(values[0], Range) else values.index(value)

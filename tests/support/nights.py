"""What a test does by day, and what it does at night: few seeds and few of its cases, and the others."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def seeds(by_day: int, at_night: int) -> list[ParameterSet]:
    """Returns the two cases of a test: the first seeds, and the others up to `at_night` of them all."""
    return [
        pytest.param(range(by_day), id="by day"),
        pytest.param(range(by_day, at_night), id="at night", marks=pytest.mark.nightly),
    ]


def some(cases: Iterable[Any], by_day: Collection[Any]) -> list[Any]:
    """Returns all cases of a test; those that are not `by_day` have the mark `nightly`. Raises ValueError for one by day that
    there is not."""
    cases = list(cases)
    if lacking := [case for case in by_day if case not in cases]:
        raise ValueError(f"no such cases: {lacking}; there are {cases}")
    return [case if case in by_day else _at_night(case) for case in cases]


def _at_night(case: Any) -> ParameterSet:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)

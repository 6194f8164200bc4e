"""What a test does by day, and what it does at night: few seeds and few of its cases, and the others."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


def seeds(by_day: int, at_night: int) -> list[ParameterSet]:
    """Returns the two cases of a test: the first seeds, and the others up to `at_night` of them all."""
    return [
        pytest.param(range(by_day), id="by day"),
        pytest.param(range(by_day, at_night), id="at night", marks=pytest.mark.nightly),
    ]


def fewer(divisor: int) -> settings:
    """Returns the settings of a property whose examples take that many times as long as others: it draws that many times fewer
    of them, by day and at night."""
    return settings(max_examples=settings().max_examples // divisor)


def some(cases: Iterable[Any], by_day: Collection[Any]) -> list[Any]:
    """Returns all cases of a test; those that are not `by_day` have the mark `nightly`. Raises ValueError for one by day that
    there is not."""
    cases = list(cases)
    if lacking := [case for case in by_day if case not in cases]:
        raise ValueError(f"no such cases: {lacking}; there are {cases}")
    return [case if case in by_day else _at_night(case) for case in cases]


def spread(
    firsts: Iterable[str | tuple[str, ...]], seconds: Iterable[str | tuple[str, ...]], every: int
) -> list[ParameterSet]:
    """Returns all pairs as cases of a test; by day each of the first meets one out of `every` of the second, and the next one
    meets others."""
    return [
        pytest.param(
            first,
            second,
            marks=() if row % every == column % every else pytest.mark.nightly,
            id=f"{_name(first)}-{_name(second)}",
        )
        for (row, first), (column, second) in product(enumerate(firsts), enumerate(seconds))
    ]


def _name(case: str | tuple[str, ...]) -> str:
    return case if isinstance(case, str) else "+".join(case)


def _at_night(case: Any) -> ParameterSet:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)

"""What is compared: trainings, each with its runs. Runs that differ in their seed alone are one training."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from paceline.studies.comparison.finished import Finished

Of = Callable[[Finished], float | None]
"""A figure of a run; None where it has none."""


@dataclass(frozen=True, slots=True)
class Side:
    """One training, and its runs."""

    name: str
    runs: Sequence[Finished]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def by_seed(self, of: Of) -> dict[int, float]:
        """A figure of each seed's run, or the mean of its runs where a seed was trained several times."""
        found: dict[int, list[float]] = {}
        for run in self.runs:
            if (value := of(run)) is not None:
                found.setdefault(run.seed, []).append(value)
        return {seed: fmean(values) for seed, values in sorted(found.items())}


def sides_of(runs: Sequence[Finished]) -> list[Side]:
    """The runs by training, in the order in which they are named."""
    found: list[list[Finished]] = []
    for run in runs:
        same = next((group for group in found if group[0].settings == run.settings), None)
        if same is None:
            found.append([run])
        else:
            same.append(run)
    return [Side(_name(group), group) for group in found]


def sides_by(runs: Sequence[Finished], name: Callable[[Finished], str]) -> list[Side]:
    """The runs by the name of their training."""
    names = dict.fromkeys(map(name, runs))
    return [Side(each, [run for run in runs if name(run) == each]) for each in names]


def differing(sides: Sequence[Side]) -> dict[str, list[Any]]:
    """The settings in which they differ: the value of each side by dotted key; None where it has none."""
    all_settings = [side.runs[0].settings for side in sides]
    keys = dict.fromkeys(key for settings in all_settings for key in settings)
    values = {key: [settings.get(key) for settings in all_settings] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def _name(runs: Sequence[Finished]) -> str:
    """The run's name, or what the names of several begin with: digits-1 and digits-2 are digits."""
    first = runs[0].name
    if len(runs) == 1:
        return first
    stems = {re.sub(r"-\d+$", "", run.name) for run in runs}
    return stems.pop() if len(stems) == 1 else f"{first} and {len(runs) - 1} more"

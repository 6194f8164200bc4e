"""The books of a run with numbered examples: what is in the slices, and what the workers' clocks say should be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.core.slice.state import SliceState
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import open_shards

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Balance:
    """One slice against the clocks that it holds."""

    pushes: int
    """Sum of its workers' clocks."""
    missing: float
    """Examples that the clocks name and the slice does not have."""
    surplus: float
    """Examples that the slice has more often than the clocks say."""
    unanswered: int
    """Clocks that a worker had an answer for, and that the slice does not have."""
    own_pushes: int
    """Pushes that the slice itself has counted."""

    @property
    def is_even(self) -> bool:
        """Whether every push up to the clocks is in the slice exactly once."""
        return not self.missing and not self.surplus and not self.unanswered and self.own_pushes == self.pushes

    def __str__(self) -> str:
        return (
            f"{self.pushes} clocks, {self.own_pushes} pushes, {self.missing:g} examples missing, {self.surplus:g} too many, "
            f"{self.unanswered} answered clocks not there"
        )


def expected(shards: Path, owned: Mapping[str, Sequence[int]], clocks: Mapping[str, int], batch: int) -> Counts:
    """How often each example was in a mini-batch up to these clocks. `owned`: each worker's shards."""
    opened = open_shards(shards)
    sizes = opened.manifest.sizes
    steps = steps_per_epoch(sizes, list(owned.values()), batch)
    counts = np.zeros(sum(sizes))
    for worker, clock in clocks.items():
        mine = owned[worker]
        numbers = np.concatenate([opened.ids(shard) for shard in mine])
        sampler = Sampler([sizes[shard] for shard in mine], batch, steps, 0, worker)
        epochs, rest = divmod(clock, steps)
        counts[numbers] += epochs
        for step in range(clock - rest + 1, clock + 1):
            counts[numbers[sampler.indices(step)]] += 1
    return counts


def found(state: SliceState, unit: float, gathered_unit: float) -> Counts:
    """How often the slice has each example: its weights, and the sum that folds next. `unit`: what one fold of an example
    adds to its weight; `gathered_unit`: to the sum. The ledger is every second weight; of a sparse slice all are."""
    step = 2 if gathered_unit else 1
    counts = state.weights[::step].astype(np.float64) / unit
    if state.gathered is not None and gathered_unit:
        counts += state.gathered[::step].astype(np.float64) / gathered_unit
    return counts


def balance(state: SliceState, has: Counts, wanted: Counts, answered: Mapping[str, int]) -> Balance:
    """The slice against its own clocks, and against what workers had answers for."""
    clocks = {worker: int(entry["clock"]) for worker, entry in state.table["clocks"].items()}
    difference = has - wanted
    return Balance(
        pushes=sum(clocks.values()),
        missing=float(abs(difference[difference < 0].sum())),
        surplus=float(difference[difference > 0].sum()),
        unanswered=sum(max(0, clock - clocks.get(worker, 0)) for worker, clock in answered.items()),
        own_pushes=int(state.table["pushes"]),
    )

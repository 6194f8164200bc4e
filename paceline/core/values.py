"""The plain values that travel between a worker and a slice."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""A flat float32 array: a worker's whole model or one server's slice of it."""
Places = npt.NDArray[np.int64]
"""Numbers of some of its elements, ascending, none twice."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """An update with one value for every element of the slice."""

    values: Vector

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """The change of some elements of the slice, to be added to them; all others keep their values."""

    places: Places
    values: Vector
    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class Empty:
    """An update that changes nothing: it advances the clock and counts in rounds, with no weight."""

    length: int

    def __len__(self) -> int:
        return self.length


Update = Dense | Sparse | Empty


class Outcome(StrEnum):
    """What became of a push on one slice."""

    FOLDED = "folded"
    """It is in the weights."""
    BUFFERED = "buffered"
    """It waits in a sum for the fold it belongs to."""
    DROPPED = "dropped"
    """It was not used; the reply's reason says why. Its clock still counts."""


class Verdict(NamedTuple):
    """A policy's answer to 'may this push in?': the outcome, and the reason where it is DROPPED."""

    outcome: Outcome
    reason: str = ""


class Base(NamedTuple):
    """The weights a gradient was computed on: the server's term and the slice's version."""

    term: int
    version: int


class Position(NamedTuple):
    """Where a worker is in its data after a push."""

    batches: int
    """Its mini-batches that are done: a process that is started again begins after them."""
    examples: int
    """Of the push's examples, those that no earlier push has counted."""


class GroupOption(NamedTuple):
    """One option of the optimizer, in one of its groups."""

    group: int
    name: str
    """In the settings, like "momentum"."""
    values: tuple[float, ...]
    """One, or both of the betas."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to step with a gradient, as the worker's script says."""

    rates: tuple[float, ...] = ()
    """The scheduler's factor on each group's rate (ratio); empty: all rates are as set."""
    untouched: tuple[int, ...] = ()
    """Numbers in the plan of the tensors that had no gradient: their values and optimizer state do not change."""
    options: tuple[GroupOption, ...] = ()
    """What the script has changed besides; all others are as set."""


AS_SET = Manner()


def together(manners: Sequence[Manner]) -> Manner:
    """The manner of several gradients in one step: the mean of their rates by group, and of their options among those that have
    changed them; and the tensors that all leave out."""
    first = manners[0] if manners else AS_SET
    if all(manner == first for manner in manners):
        return first
    groups = range(max(len(manner.rates) for manner in manners))
    rates = tuple(fmean(manner.rates[group] if manner.rates else 1.0 for manner in manners) for group in groups)
    untouched = tuple(sorted(set(first.untouched).intersection(*(each.untouched for each in manners))))
    return Manner(rates, untouched, _mean_options(manners))


def _mean_options(manners: Sequence[Manner]) -> tuple[GroupOption, ...]:
    found = dict[tuple[int, str], list[tuple[float, ...]]]()
    for manner in manners:
        for group, name, values in manner.options:
            found.setdefault((group, name), []).append(values)

    means = ((key, tuple(map(fmean, zip(*each, strict=True)))) for key, each in found.items())
    return tuple(GroupOption(*key, values) for key, values in means)


@dataclass(frozen=True, slots=True)
class Push:
    """One worker's update of one slice. (worker, incarnation, clock) makes a repeat harmless."""

    worker: str
    incarnation: int
    clock: int
    """The number of this worker's pushes including this one, from 1; the same on every slice."""
    update: Update
    examples: int
    """Training examples behind the update: its weight in a mean; 0 for an empty update."""
    base: Base
    view: int
    """The newest membership view the worker knows."""
    time: float
    """Seconds on the server's monotonic clock; handed in, never read."""
    manner: Manner = AS_SET
    round: int = 0
    """The worker's round that is over, from 1, in a run without servers, where it is read."""
    dropped: bool = False
    """Whether an earlier term of the server has dropped it; this one must, too."""
    position: Position | None = None
    """Of a script, which may step several times for a mini-batch; None: one mini-batch for each."""

    @property
    def counted(self) -> int:
        """The examples that this push adds to those that are trained."""
        return self.examples if self.position is None else self.position.examples


class Published:
    """One version of a slice's weights for readers; it does not change while it is pinned."""

    __slots__ = ("is_lost", "pins", "values", "version")

    def __init__(self, version: int, values: Vector) -> None:
        self.version = version
        self.values = values
        self.pins = 0
        self.is_lost = False
        """Whether its array was taken back while it was pinned: what was read last may be of another version."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of policy during a run (docs/understand/rounds.md#changes-of-policy)."""

    number: int
    """Changes so far, this one included."""
    policy: dict[str, Any]
    """Name and options of the policy that begins."""
    version: int
    """Every slice's version, and every member's progress, when it begins."""
    rate: float = 1.0
    """What every learning rate is multiplied by from then on (ratio)."""
    back: tuple[int, ...] = ()
    """By server: the version of the snapshot whose weights it goes on with; empty: it keeps its weights."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "back", tuple(self.back))  # JSON makes a list of it


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one push: its outcome, and the weights to continue with (pinned until `ModelSlice.release`)."""

    worker: str
    clock: int
    outcome: Outcome
    reason: str
    term: int
    weights: Published
    staleness: int
    """Folds by others since the weights this push was computed on (versions)."""
    others: int | None
    """Pushes by others since this worker's last one ([SHAT] c_i); None for the first push after a join."""
    members: int
    lr: float
    """Learning rate of this fold."""
    pushed_at: float
    """When the push came (its `time`), so that the driver can measure how long the policy made it wait."""
    stop: bool
    """The worker's last clock has come: leave."""
    durable: int = 0
    """The worker's clock in the newest snapshot on disk: up to it nothing need be sent again."""
    switch: Switch | None = None
    """This slice's last change of policy; None if the worker has caught up with only a part of its clocks."""
    view: int = 0
    """The slice's view."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One member in a view."""

    incarnation: int
    handicap: int
    """progress = clock + handicap; set once at the seat's start so that a joiner begins with the slowest."""
    last: int | None = None
    """The last clock that is folded; None while no end is named."""
    switch_clock: int | None = None
    """While the policy changes: the clock up to which the worker trains under the old one."""


@dataclass(frozen=True, slots=True)
class View:
    """The members that count, as the chief publishes them; view numbers only grow."""

    number: int = 0
    seats: dict[str, Seat] = field(default_factory=dict)
    examples_per_epoch: int = 0
    """Training examples of the data set; 0 until a worker reports them."""
    switch: Switch | None = None
    """The newest change of policy."""
    made: Switch | None = None
    """The newest change that every slice has made; it differs from `switch` while that one is under way."""

    def begun(self) -> "View":
        """The view once the new policy has begun: all members level, at the version that the switch names."""
        if self.switch is None:
            return self
        version = self.switch.version
        return replace(self, seats={worker: _switched(seat, version) for worker, seat in self.seats.items()})


def _switched(seat: Seat, version: int) -> Seat:
    """A seat once the new policy has begun at this version: all members are level."""
    if seat.switch_clock is None:
        return seat
    return replace(seat, handicap=version - seat.switch_clock, switch_clock=None)


def worker_order(name: str) -> tuple[int, str]:
    """Sorting key that puts worker-2 before worker-10, so sums in worker order are the same everywhere."""
    return len(name), name

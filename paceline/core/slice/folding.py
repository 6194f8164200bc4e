"""How a slice folds pushes in and gives weights out: the calls that dense and sparse updates share."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.values import Places, Published, Push, Sparse, Vector


class Sum(Protocol):
    """The pushes of one fold, gathered. Ordered: at most one of each worker. Not thread-safe."""

    contributors: dict[str, int]
    """Ordered: workers whose push is not folded yet, and the examples that it counts."""
    pushes: int
    """Pushes with a weight above 0."""
    examples: int

    @property
    def open_examples(self) -> int:
        """Examples that the pushes count which are not folded yet."""

    def add(self, push: Push, weight: float) -> None:
        """Adds a push to the sum, or keeps it until its turn."""

    def needs(self, worker: str) -> bool:
        """Whether this worker's values are still needed."""

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Ordered: adds the kept pushes, up to the first expected worker that has not pushed yet."""

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """The worker whose push the sum waits for."""

    # snapshots, outside of rounds
    @property
    def changing(self) -> dict[str, Vector]:
        """What a snapshot holds and `add` changes in place, by its name in `SliceState`."""

    @property
    def shares(self) -> dict[str, Sparse]:
        """Each worker's share of sparse pushes, which no `add` changes in place."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a snapshot's table holds of it."""

    def restore(self, state: SliceState) -> None:
        """Goes on from a snapshot."""


class Folding(Protocol):
    """The weights of one slice, and how they change. Every fold makes the next version (`Clocks.version`). Not
    thread-safe."""

    @property
    def sum(self) -> Sum | None:
        """The pushes that fold together next; None where the policy folds each by itself."""

    def begin(self) -> None:
        """Takes another policy, with an empty sum."""

    def start(self, weights: Vector, version: int) -> None:
        """Takes the first weights, or those of a snapshot."""

    def check_form(self, push: Push) -> None:
        """Raises BadPush if the update has the other form."""

    # weights in
    def rates(self, lr: float, staleness: int, members: int) -> tuple[float, float]:
        """The rate that the reply to a push names, and the rate that the push folds with; `lr`: the schedule's."""

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        """Folds a single push; an empty one changes nothing."""

    def close(self) -> None:
        """Folds the sum and clears it."""

    # weights out
    def pull(self, version: int | None, mean: bool) -> Published | None:
        """The weights of `version` (None: the current ones), which the caller gives to `release`; None if they are not kept.
        `mean`: the mean of the versions up to this one instead, if it is kept."""

    def current(self) -> Published:
        """The current weights for a reply, to be given to `release`."""

    def release(self, published: Published) -> None:
        """A reader has finished."""

    @property
    def oldest(self) -> int:
        """The oldest version that is still given out."""

    @property
    def crowded(self) -> bool:
        """Whether the next fold would need more memory than the formula counts, until a reader has finished."""

    def take_back(self) -> None:
        """Takes the array that the next fold needs from those who read an old version (`Published.is_lost`)."""

    def answer(self, since: int | None, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        """The weights at the wanted places; without these, at the places that differ from version `since` (None: a version
        unknown here), and also at `also`. None if the differences are unknown or more than `most` places."""

    def renumber(self) -> None:
        """Gives the current weights the slice's version, raised without a fold; older ones are no longer given out."""

    # snapshots
    def keep(self) -> Published:
        """The current weights for a snapshot, to be given to `release`. They may change in place: see `changing`."""

    @property
    def changing(self) -> dict[str, Vector]:
        """What a snapshot holds and folds change in place, by its name in `SliceState`."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a snapshot's table holds of it."""

    @property
    def lacks(self) -> int:
        """Arrays of the slice's length that folds may have to make while a snapshot is taken."""

    def supply(self, values: Vector) -> None:
        """Takes one of these."""

    def restore(self, state: SliceState) -> None:
        """Goes on from a snapshot; the clocks hold the version."""


def settled(clocks: Clocks, gathered: Sum | None) -> int:
    """Examples of the pushes that count so far, without the ones that wait in the sum."""
    return clocks.trained if gathered is None else clocks.trained - gathered.open_examples


NewFolding = Callable[[int, Clocks, ServerHalf], Folding]
"""Makes the folding of a slice of this length."""

"""How pushes get into the weights of a slice, and out to its readers: the calls that dense and sparse updates share."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.sync.clocks import Clocks
from paceline.core.values import Manner, Places, Published, Push, Sparse, Vector


class Sum(Protocol):
    """The pushes of one fold, gathered. Ordered: at most one of each worker. Not thread-safe."""

    contributors: dict[str, int]
    """Ordered: workers whose push is not folded yet, and its examples."""
    pushes: int
    """Those that weigh anything."""
    examples: int

    manners: list[Manner]
    """How those in the sum are to be stepped with; none of sparse ones."""

    @property
    def open_examples(self) -> int:
        """Examples of the pushes that are not folded yet."""

    @property
    def total(self) -> Vector:
        """The sum so far, with a value for every element."""

    def add(self, push: Push, weight: float) -> None:
        """Takes a push into the sum, or keeps it until its turn."""

    def needs(self, worker: str) -> bool:
        """Whether this worker's values are still needed."""

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Ordered: adds what is kept, up to the first expected worker that has not pushed yet."""

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """The worker whose push the sum waits for."""

    def restore(self, total: Vector, pushes: int, examples: int, manners: Sequence[Manner] = ()) -> None:
        """Goes on with a sum from a snapshot."""


class Folding(Protocol):
    """The weights of one slice, and how they change. Every fold makes the next version (`Clocks.version`). Not
    thread-safe."""

    @property
    def sum(self) -> Sum | None:
        """The pushes that fold together next; None where the policy folds each by itself."""

    def begin(self) -> None:
        """Another policy is in force: the sum starts anew."""

    def start(self, weights: Vector, version: int) -> None:
        """The first weights, or those of a snapshot."""

    def check_form(self, push: Push) -> None:
        """BadPush where its update is of the other form."""

    # weights in
    def rates(self, lr: float, staleness: int, members: int) -> tuple[float, float]:
        """What a worker is told as the rate of its push, and what that folds with; `lr`: the schedule's."""

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        """Folds a push by itself; one that is empty changes nothing."""

    def close(self) -> None:
        """Folds the sum, which starts anew."""

    # weights out
    def pull(self, version: int | None, mean: bool) -> Published | None:
        """The weights (of `version`, else the current ones), to be given to `release`; None where they are not kept. `mean`:
        that of the versions up to this one instead, where it is kept."""

    def current(self) -> Published:
        """The current weights for a reply, to be given to `release`."""

    def release(self, published: Published) -> None:
        """A reader has finished."""

    @property
    def crowded(self) -> bool:
        """Whether the next fold would need more memory than the formula counts, until a reader has finished."""

    def answer(self, since: int | None, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        """The weights at the places that are wanted; or without such, at those that differ from version `since` (None: one
        that is not known here), and `also` at these. None where nobody knows what differs, or where it is more than `most`
        places."""

    def renumber(self) -> None:
        """The slice's version was raised without a fold: the current weights get its number, none older are given out."""

    # snapshots
    def state(self, slots: Sequence[Vector], facts: dict[str, Any], gathered: Vector | None) -> SliceState:
        """A copy of the weights and of what the folds remember, beside these slots, facts and this sum."""

    def restore(self, state: SliceState) -> None:
        """Takes back what `state` gave; the version is the clocks'."""


def settled(clocks: Clocks, gathered: Sum | None) -> int:
    """Examples of the pushes counted so far, without those that wait in the sum."""
    return clocks.examples if gathered is None else clocks.examples - gathered.open_examples


NewFolding = Callable[[int, Clocks, ServerHalf], Folding]
"""Makes the folding of a slice of so many values."""

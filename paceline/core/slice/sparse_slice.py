"""A slice of a linear model over sparse rows: pushes change a few weights, in place, and replies bring only what has changed
or what was asked for [Hogwild]."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paceline.core.errors import BadPush
from paceline.core.linear.sparse import Changes, add_at, dense_of, distinct, merged, overwritten, sparse_of
from paceline.core.settings.config import ScheduleConfig
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.running_mean import RunningMean
from paceline.core.slice.state import SliceState
from paceline.core.slice.versions import Versions
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.policy import Policy
from paceline.core.values import Base, Dense, Empty, Places, Published, Push, Sparse, Vector, worker_order


class SparseSlice(ModelSlice):
    """As `ModelSlice`, for updates that name their places. A push is a change that its worker has made, learning rate
    included, and is added as it is; pushes of one round are summed, not averaged [Hogwild]. Work follows the places of a
    push, memory the slice's length. Not thread-safe, as the other."""

    def __init__(
        self, length: int, policy: Policy, optimizer: Optimizer, term: int = 1, schedule: ScheduleConfig | None = None,
        epochs: float = 1.0, average_from: float | None = None,
    ) -> None:  # fmt: skip
        """`average_from`: epochs after which the mean of the versions begins; None: none is kept."""
        super().__init__(length, policy, optimizer, term, schedule, epochs)  # no pool: rates are the workers' affair
        self._mean = None if average_from is None else RunningMean(length, average_from)

    def pull(self, version: int | None = None, mean: bool = False) -> Published | None:
        """A copy, for weights are changed in place."""
        found = super().pull(version)
        if found is None:
            return None
        values = self._mean.of(found.values) if mean and self._mean is not None else found.values.copy()
        return Published(found.version, values)

    def release(self, published: Published) -> None:
        """Nothing is pinned."""

    def answer(self, base: Base, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        """The weights at the places that are wanted; or without such, at those that differ from `base`, and `also` at these.
        None where nobody knows any more what differs, or where it is more than `most` places."""
        places = wanted
        if places is None:
            places = self._changes.since(base.version) if base.term == self.term else None
            if places is not None and len(also):
                places = distinct(np.concatenate([places, also]))
        if places is None or len(places) > most:
            return None
        return Sparse(places, self._versions.current.values[places], self.length)

    # snapshots
    def state(self) -> SliceState:
        found = super().state()
        if self._mean is None or not self._mean.count:
            return found
        return replace(found, lag=self._mean.lag.copy(), table=found.table | {"averaged": self._mean.count})

    def restore(self, state: SliceState) -> None:
        """A snapshot without a mean, like one from before there were any, begins it anew."""
        super().restore(state)
        if self._mean is not None and state.lag is not None:
            self._mean.lag, self._mean.count = state.lag, state.table["averaged"]

    # inside
    def _begin(self, policy: Policy) -> None:
        super()._begin(policy)
        if self._gathering is not None:
            self._gathering = SparseSum(self.length, policy.rounds, policy.overwrites)  # type: ignore[assignment]

    def _keep(self, weights: Vector, version: int) -> Versions:
        self._changes = Changes(self.length, version)
        return InPlace(weights, version, False)

    def _check_form(self, push: Push) -> None:
        if isinstance(push.update, Dense):
            raise BadPush(
                f"{push.worker} pushed a value for every weight; this slice takes sparse updates. Set updates alike."
            )

    def _rates(self, staleness: int, members: int) -> tuple[float, float]:
        return self.lr, self.policy.rate(1.0, staleness, members)

    def _fold_one(self, push: Push, members: int, lr: float) -> None:
        if isinstance(push.update, Sparse):
            self._add(push.update, lr)

    def _close(self, gathering: "SparseSum") -> None:  # type: ignore[override]
        total = gathering.take()
        self.clocks.buffered = 0
        self._add(total, 1.0)

    def _add(self, update: Sparse, factor: float) -> None:
        self._steps += 1
        values = self._versions.current.values
        if self._mean is not None and self._mean.goes_on(self._epoch):
            before = values[update.places]
            add_at(values, update, factor)
            self._mean.note(update.places, values[update.places] - before)
        else:
            add_at(values, update, factor)
        self._publish(values)
        self._changes.note(self.version, update.places)

    @property
    def _epoch(self) -> float:
        """Epochs that are settled; 0 before anybody has said how long one is."""
        per_epoch = self.clocks.view.examples_per_epoch
        return self.settled / per_epoch if per_epoch else 0.0


class InPlace(Versions):
    """One array, changed under whoever looks at it: only the slice itself does."""

    def target(self) -> Vector:
        return self.current.values

    @property
    def crowded(self) -> bool:
        return False


class SparseSum:
    """The pushes of one fold, as `Accumulator` keeps dense ones. Ordered: at most one of each worker, summed in worker order.
    Else a sum for each worker, where later values may replace earlier ones. Not thread-safe."""

    squares: float | None = None

    def __init__(self, length: int, ordered: bool, overwrites: bool) -> None:
        self._length, self._ordered, self._overwrites = length, ordered, overwrites
        self._sums: dict[str, Sparse] = {}
        self.contributors: dict[str, int] = {}
        """Ordered: workers whose push is not folded yet, and its examples."""
        self.pushes = 0
        self.examples = 0

    @property
    def open_examples(self) -> int:
        """Examples of the pushes that are not folded yet."""
        return self.examples

    @property
    def total(self) -> Vector:
        """What is gathered, with a value for every element."""
        return dense_of(self._sums.values(), self._length)

    def add(self, push: Push, weight: float) -> None:
        """Keeps the push until the fold."""
        if self._ordered:
            self.contributors[push.worker] = push.examples
        self.examples += push.examples
        if isinstance(push.update, Empty):
            return
        assert isinstance(push.update, Sparse)
        self.pushes += 1
        update = push.update
        if weight != 1:
            update = Sparse(update.places, update.values * np.float32(weight), self._length)
        before = self._sums.get(push.worker)
        if before is not None:
            update = overwritten(before, update) if self._overwrites else merged([before, update], self._length)
        self._sums[push.worker] = update

    def holds(self, worker: str) -> bool:
        """No array of the server's is kept."""
        return False

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Sums are made at the end."""

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """Nobody has to be first."""
        return None

    def take(self) -> Sparse:
        """The sum, in worker order, which starts anew."""
        updates = [self._sums[worker] for worker in sorted(self._sums, key=worker_order)]
        self._sums, self.pushes, self.examples = {}, 0, 0
        self.contributors.clear()
        return merged(updates, self._length)

    def restore(self, total: Vector, pushes: int, examples: int) -> None:
        """Goes on with a sum from a snapshot."""
        self._sums, self.pushes, self.examples = {"": sparse_of(total)}, pushes, examples

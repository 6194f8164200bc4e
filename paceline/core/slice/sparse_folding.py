"""Folds pushes into the weights of a sparse slice: each changes a few weights in place, and replies carry only the changed
or requested weights [Hogwild]."""

from typing import Any

import numpy as np

from paceline.core.errors import BadPush
from paceline.core.linear.sparse import Changes, add_at, distinct
from paceline.core.policies.clocks import Clocks
from paceline.core.slice.folding import settled
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.sparse_sum import SparseSum
from paceline.core.slice.state import SliceState
from paceline.core.values import Dense, Places, Published, Push, Sparse, Vector


class RunningMean:
    """The mean of `count` versions. Every change lags behind by the versions before it: with d_j the change of fold j,
    mean = w - sum of (j - 1) d_j / count [Polyak, Juditsky 1992; the form for sparse steps: Bottou, SGD tricks, 2012]. In
    float32, because a term stands to the sum as the change to its weight, so it loses no more digits than the weights do.
    Not thread-safe."""

    def __init__(self, length: int, start: float) -> None:
        """`start`: the epochs after which it begins."""
        self._start = start
        self.count = 0
        self.lag = np.zeros(length, np.float32)

    def goes_on(self, epoch: float) -> bool:
        """Whether the version made now counts; once one has, all later ones do."""
        return self.count > 0 or epoch >= self._start

    def note(self, places: Places, change: Vector) -> None:
        """Adds a version, which differs from the one before by `change` at these places."""
        if self.count:
            self.lag[places] += np.float32(self.count) * change
        self.count += 1

    def of(self, weights: Vector) -> Vector:
        """The mean, in a new array; `weights`: the newest version, which is the mean while none is counted."""
        mean: Vector = self.lag / np.float32(max(1, self.count))
        np.subtract(weights, mean, out=mean)
        return mean


class SparseFolding:
    """A `Folding` of updates that name their places. A push is a change that its worker has made, learning rate included, and
    is added as it is; with an optimizer for sparse gradients it is a gradient, which steps its places alone. Pushes of
    one round are summed, not averaged [Hogwild]. Work grows with the places of a push, memory with the slice's length."""

    _current: Published
    """One array, which this folding alone changes in place, even while others read it."""
    _changes: Changes

    def __init__(self, length: int, clocks: Clocks, half: ServerHalf, average_from: float | None = None) -> None:
        """`average_from`: epochs after which the mean of the versions begins; None: keep no mean."""
        self._length = length
        self._clocks = clocks
        self._half = half
        self._mean = None if average_from is None else RunningMean(length, average_from)
        self.begin()

    def begin(self) -> None:
        policy = self._half.policy
        self.sum = SparseSum(self._length, policy.rounds, policy.overwrites) if policy.has_sum else None

    def start(self, weights: Vector, version: int) -> None:
        self._changes = Changes(self._length, version)
        self._current = Published(version, weights)

    def check_form(self, push: Push) -> None:
        if isinstance(push.update, Dense):
            raise BadPush(
                f"{push.worker} pushed a value for every weight; this slice takes sparse updates. Set updates alike."
            )

    # weights in
    def rates(self, lr: float, staleness: int, members: int) -> tuple[float, float]:
        """The schedule's rate is in the change already."""
        return lr, self._half.policy.rate(1.0, staleness, members)

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        if isinstance(push.update, Sparse):
            self._add(push.update, rate)

    def close(self) -> None:
        assert self.sum is not None
        self._add(self.sum.take(), 1.0)

    def _add(self, update: Sparse, factor: float) -> None:
        self._half.copies.finish()
        self._half.steps += 1
        values = self._current.values
        if self._mean is not None and self._mean.goes_on(self._epoch):
            before = values[update.places]
            self._change(values, update, factor)
            self._mean.note(update.places, values[update.places] - before)
        else:
            self._change(values, update, factor)
        self._clocks.version += 1
        self._current = Published(self._clocks.version, values)
        self._changes.note(self._clocks.version, update.places)

    def _change(self, values: Vector, update: Sparse, factor: float) -> None:
        half = self._half
        if half.optimizer.sparse:
            half.optimizer.step_at(values, update, factor, half.slots, half.steps)
        else:
            add_at(values, update, factor)

    @property
    def _epoch(self) -> float:
        """Epochs counted; 0 until the length of an epoch is known."""
        per_epoch = self._clocks.view.examples_per_epoch
        return settled(self._clocks, self.sum) / per_epoch if per_epoch else 0.0

    # weights out
    def pull(self, version: int | None, mean: bool) -> Published | None:
        """A copy, since folds change the weights in place."""
        found = self._current
        if version not in (None, found.version):
            return None
        values = self._mean.of(found.values) if mean and self._mean is not None else found.values.copy()
        return Published(found.version, values)

    def current(self) -> Published:
        return self._current

    def release(self, published: Published) -> None:
        """Nothing is pinned."""

    @property
    def oldest(self) -> int:
        return self._clocks.version

    @property
    def crowded(self) -> bool:
        return False

    def take_back(self) -> None:
        """Nothing is pinned."""

    def answer(self, since: int | None, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        places = wanted
        if places is None:
            places = None if since is None else self._changes.since(since)
            if places is not None and len(also):
                places = distinct(np.concatenate([places, also]))
        if places is None or len(places) > most:
            return None
        return Sparse(places, self._current.values[places], self._length)

    def renumber(self) -> None:
        self._current.version = self._clocks.version

    # snapshots
    def keep(self) -> Published:
        return self._current

    @property
    def changing(self) -> dict[str, Vector]:
        weights = {"weights": self._current.values}
        return weights if self._mean is None or not self._mean.count else weights | {"lag": self._mean.lag}

    @property
    def facts(self) -> dict[str, Any]:
        return {} if self._mean is None or not self._mean.count else {"averaged": self._mean.count}

    @property
    def lacks(self) -> int:
        return 0

    def supply(self, values: Vector) -> None:
        """It needs none."""

    def restore(self, state: SliceState) -> None:
        """A snapshot without a mean, as of an older release, restarts it."""
        self.start(state.weights, self._clocks.version)
        if self._mean is not None and state.lag is not None:
            self._mean.lag = state.lag
            self._mean.count = state.table["averaged"]

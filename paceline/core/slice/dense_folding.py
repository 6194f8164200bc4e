"""Folds pushes into the weights of a dense slice: steps of the policy's optimizer, each written to a new version."""

from typing import Any

import numpy as np

from paceline.core.errors import BadPush
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Gathered
from paceline.core.slice.dense_sum import DenseSum
from paceline.core.slice.folding import settled
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.slice.versions import Versions
from paceline.core.values import AS_SET, Dense, Places, Published, Push, Sparse, Vector


class DenseFolding:
    """A `Folding` of gradients with a value for every weight. A version does not change while a reader holds it."""

    versions: Versions

    def __init__(self, length: int, clocks: Clocks, half: ServerHalf) -> None:
        self._length = length
        self._clocks = clocks
        self._half = half
        self.begin()

    def begin(self) -> None:
        policy, norm = self._half.policy, self._half.norm if self._half.rate.needs_squares else None
        self.sum = DenseSum(self._length, ordered=policy.rounds, norm=norm) if policy.has_sum else None

    def start(self, weights: Vector, version: int) -> None:
        self.versions = Versions(weights, version, self._half.policy.rounds)

    def check_form(self, push: Push) -> None:
        if isinstance(push.update, Sparse):
            raise BadPush(
                f"{push.worker} pushed a sparse update to a slice of dense ones. Set updates alike everywhere."
            )
        if push.manner != AS_SET:
            self._half.check_manner(push.worker, push.manner, self._rate())

    # weights in
    def rates(self, lr: float, staleness: int, members: int) -> tuple[float, float]:
        rate = self._half.policy.rate(lr, staleness, members)
        return rate, rate

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        if isinstance(push.update, Dense):
            one = Gathered(push.update.values, 1.0, 1, push.examples, members, push.worker, push.manner)
            self.fold(one, rate)

    def close(self) -> None:
        """Folds the sum; one without examples copies the weights unchanged to a new version."""
        assert self.sum is not None
        view, rate, lr = self._clocks.view, self._half.rate, self._rate()
        squares = self.sum.squares
        gathered = self.sum.close(len(view.seats))
        if gathered is not None:
            lr = lr if squares is None else lr * rate.gain(gathered, squares, self._half.norm(gathered.total))
            self._half.clip(gathered)
            self.fold(gathered, lr)
            return
        target = self.versions.target()
        np.copyto(target, self.versions.current.values)
        self._publish(target)

    def _rate(self) -> float:
        """The schedule's rate for the next fold."""
        return self._half.rate.at(settled(self._clocks, self.sum), self._clocks.view.examples_per_epoch)

    def fold(self, gathered: Gathered, lr: float) -> None:
        """Takes one step of the policy."""
        half, versions = self._half, self.versions
        half.copies.finish()
        target = versions.target()
        half.steps += 1
        optimizer = half.optimizer_for(gathered.manner, gathered.members if gathered.worker else 0)
        half.policy.fold(versions.current.values, target, gathered, optimizer, lr, half.slots, half.steps)
        self._publish(target)

    def _publish(self, weights: Vector) -> None:
        self._clocks.version += 1
        self.versions.publish(weights, self._clocks.version)

    # weights out
    def pull(self, version: int | None, mean: bool) -> Published | None:
        return self.versions.pin(version)

    def current(self) -> Published:
        found = self.versions.pin()
        assert found is not None
        return found

    def release(self, published: Published) -> None:
        self.versions.release(published)

    @property
    def oldest(self) -> int:
        return self.versions.oldest

    @property
    def crowded(self) -> bool:
        return self.versions.crowded

    def take_back(self) -> None:
        self.versions.take_back()

    def answer(self, since: int | None, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        """A fold changes all weights."""
        return None

    def renumber(self) -> None:
        self.versions.renew(self._clocks.version, self._half.policy.rounds)

    # snapshots
    def keep(self) -> Published:
        return self.versions.keep()

    @property
    def changing(self) -> dict[str, Vector]:
        return {}

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def lacks(self) -> int:
        return self.versions.lacks

    def supply(self, values: Vector) -> None:
        self.versions.supply(values)

    def restore(self, state: SliceState) -> None:
        self.start(state.weights, self._clocks.version)

"""Dynamic SSP: a bound between two limits, chosen so that a fast worker waits as little as possible."""

from bisect import bisect
from typing import ClassVar, Literal

from pydantic import Field, PrivateAttr

from paceline.core.extension import SettingsRule
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.values import Push, worker_order


class Dssp(Policy):
    """[Survey; Zhao et al. 2019]: within `lower` no worker waits; the fastest worker p, once beyond it, is granted the r more
    steps after which its push is expected to come closest to one of the slowest worker's. Ours: a grant's OK is its first step,
    and grants end at `upper`; `bounded=false` is the published form, which has no upper bound."""

    sparse: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "lower"
    overlaps: ClassVar[bool] = True
    bounds_lead: ClassVar[bool] = True
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "slowest"
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: policy.upper < policy.lower,
            "policy.upper: got {own.upper}, which is below policy.lower ({own.lower}); give lower <= upper.",
        ),
    )
    lower: int = Field(3, ge=0, description="Clocks a worker may be ahead of the slowest without a grant.")
    upper: int = Field(15, ge=0, description="Clocks a worker may be ahead with one.")
    bounded: bool = Field(True, description="false: grants may lead beyond `upper`, as in the published pseudo-code.")
    _left: dict[str, int] = PrivateAttr(default_factory=dict)
    """Granted free steps that each worker has left."""
    _free: set[str] = PrivateAttr(default_factory=set)
    """Workers whose last push used a free iteration."""
    _pushed: dict[str, tuple[float, float | None]] = PrivateAttr(default_factory=dict)
    """Times of each worker's last two pushes (seconds)."""

    def observe(self, push: Push, clocks: Clocks) -> None:
        worker = push.worker
        is_first = clocks.entry(worker).others is None
        self._pushed[worker] = (push.time, None if is_first else self._pushed.get(worker, (None,))[0])
        self._free.discard(worker)
        left = 0 if is_first else self._left.get(worker, 0)
        lead = clocks.lead(worker)
        if left == 0 and lead > self.lower and self._is_fastest(worker, clocks):
            most = self.upper - self.lower
            left = self._grant(worker, clocks, min(most, self.upper + 1 - lead) if self.bounded else most)
            left += bool(left) and not self.bounded  # as published, the OK comes on top of the grant
        if left:
            self._free.add(worker)
        self._left[worker] = max(0, left - 1)

    def _is_fastest(self, worker: str, clocks: Clocks) -> bool:
        mine = clocks.progress(worker)
        return not any(clocks.progress(other) > mine for other in clocks.members)

    def _grant(self, worker: str, clocks: Clocks, most: int) -> int:
        """The controller: the r in 0..most whose simulated push lies closest to one of the slowest worker's."""
        if most <= 0:
            return 0
        least = clocks.slowest()
        slow = [other for other in clocks.members if clocks.progress(other) == least and not clocks.is_done(other)]
        slowest = min(slow, key=lambda other: (self._times(other, clocks)[0], worker_order(other)))
        mine, its = self._times(worker, clocks), self._times(slowest, clocks)
        if mine[1] is None or its[1] is None:
            return 0
        my_step, its_step = mine[0] - mine[1], its[0] - its[1]
        coming = [its[0] + (k + 1) * its_step for k in range(self.upper - self.lower + 1)]

        def distance(r: int) -> float:
            time = mine[0] + r * my_step
            after = bisect(coming, time)
            return min(abs(time - other) for other in coming[max(0, after - 1) : after + 1])

        return min(range(most + 1), key=distance)

    def _times(self, worker: str, clocks: Clocks) -> tuple[float, float | None]:
        """The times of the worker's last two pushes; those of an earlier incarnation don't count."""
        never = float("-inf"), None
        return never if clocks.entry(worker).seen is None else self._pushed.get(worker, never)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return worker in self._free or clocks.lead(worker) <= self.lower

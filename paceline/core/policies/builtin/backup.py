"""Backup workers: lock-step that waits for the fastest m of n only."""

from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy, unless_old
from paceline.core.values import Push, Verdict


class Backup(Policy):
    """[Chen et al. 2016]: a version's step is the mean of the first m = n - b gradients computed on it; later ones are dropped
    and their workers go on from the new weights at once."""

    sparse: ClassVar[bool] = True
    gathers: ClassVar[bool] = True
    lock_step: ClassVar[bool] = True
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "version"
    worker_momentum: ClassVar[bool] = False
    shorthand: ClassVar[str | None] = "backups"
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: policy.backups is not None and policy.backups >= config.workers,
            "policy.backups: got {own.backups} of {workers} workers, so nobody would be waited for. Give fewer than "
            "`workers`, or use asp.",
        ),
    )
    backups: int | None = Field(None, ge=0, description="Workers not waited for; default: a sixteenth, at least 1.")

    def step_pushes(self, members: int) -> float:
        return max(1, members - self._spare(members))

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "what comes late is left out, so a slow worker's data hardly counts"

    def _spare(self, members: int) -> int:
        """b."""
        return max(1, round(members / 16)) if self.backups is None else self.backups

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return unless_old(push, clocks)

    def is_due(self, clocks: Clocks) -> bool:
        """True once at most b of the members that could still push are missing; an empty update counts as present. Also true
        if all have pushed but too many were late, or repeated a clock: these may wait on another slice, where the others
        were late."""
        spare = self._spare(len(clocks.view.seats))
        missing = [worker for worker in clocks.members if not clocks.is_buffered(worker)]
        running = [worker for worker in missing if not clocks.is_done(worker)]
        is_enough = len(running) <= spare or all(map(clocks.has_come, running))
        return len(missing) < len(clocks.view.seats) and is_enough

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        """A push on weights of an older term waits for nobody: it may be late on another slice and not on this one, so each
        slice could wait for workers that wait on the other."""
        return not clocks.is_buffered(worker) or worker not in clocks.fresh

"""Everyone: no worker waits; the pushes fold once every worker has contributed."""

from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.values import Outcome, Push, Verdict


class Everyone(Policy):
    """The asynchronous mode of [Hogwild]: the server gathers until all have pushed since the last fold, some more than once,
    and lets all continue meanwhile."""

    sparse: ClassVar[bool] = True
    gathers: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "merge"
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: policy.overwrites and config.updates != "sparse",
            "policy.merge: overwrite works by features and needs updates: sparse, but they are {updates}. Leave it out, or "
            "train a sparse task like svm.",
        ),
    )
    merge: Literal["sum", "overwrite"] = Field(
        "sum",
        description="A worker's second push into one sum is added (sum), or replaces each of its features "
        "(overwrite; sparse only).",
    )

    @property
    def overwrites(self) -> bool:
        return self.merge == "overwrite"

    def step_pushes(self, members: int) -> float:
        return members

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "each step waits for a push of the slowest worker, so a slow one leaves few steps"

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return Verdict(Outcome.BUFFERED)

    def is_due(self, clocks: Clocks) -> bool:
        running = [worker for worker in clocks.members if not clocks.is_done(worker)]
        return bool(running) and all(map(clocks.is_buffered, running))

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

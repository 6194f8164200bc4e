"""What a script has said so far: what it trains, on what, for how long, and what scores it."""

import sys
from dataclasses import dataclass, field
from typing import Any

from paceline.core.policies.policy import Policy
from paceline.worker.script.asked_scores import AskedScores
from paceline.worker.script.course import TrainingRows
from paceline.worker.script.script_replica import ScriptReplica
from paceline.worker.script.tell import TRAINER


@dataclass(slots=True)
class TrainingPlan:
    """Complete once the script has called `wrap`, `loader` and `epochs`, or `steps`."""

    replica: ScriptReplica | None = None
    optimizer: dict[str, Any] = field(default_factory=dict)
    """In the run's words."""
    clip_norm: float | None = None
    data: TrainingRows | None = None
    length: dict[str, Any] = field(default_factory=dict)
    asked: AskedScores | None = None
    """None: nothing is scored."""

    def lacking(self) -> str:
        """The call that is missing, and what to do; empty where none is."""
        for said, what in (
            (self.replica, "paceline.wrap(optimizer, model)"),
            (self.data, "paceline.loader(dataset, batch_size=...), or paceline.steps(n) without a data set"),
            (self.length, "paceline.epochs(n)"),
        ):
            if said is None or said == {}:
                also = TRAINER if "transformers.trainer" in sys.modules else ""
                return f"never called {what}. Call it before the first mini-batch.{also}"
        return ""

    def settings(self, policy: Policy, accumulate: int, worker_scores: bool) -> dict[str, Any]:
        """What the script asks for, below the run's file and flags. `accumulate`: mini-batches of the script for each step;
        `worker_scores`: where nobody asks for a process that does nothing else."""
        asked: dict[str, Any] = {"evaluate_every": self.asked.every if self.asked else 0, **self.length}
        # each worker makes its own steps, so that schedulers end where the run does; where a policy lets a fast worker go on,
        # it takes over what slow ones have not done
        asked["budget"] = "per_worker" if policy.keeps_together and not policy.changes_itself else "total"
        if worker_scores and not (self.asked and self.asked.apart):
            asked["scored_by"] = "worker"
        if self.optimizer:
            asked["optimizer"] = self.optimizer
        if self.clip_norm is not None and policy.steps_on_mean:  # it lies on one server, which can take its norm
            asked |= {"clip": {"norm": self.clip_norm, "of": "mean"}, "plan": {"slices": "whole"}}
        elif self.clip_norm is not None:
            asked["clip"] = {"norm": self.clip_norm}
        if self.data is not None:
            asked |= self.data.asks
            asked["batch_size"] *= accumulate
        return asked

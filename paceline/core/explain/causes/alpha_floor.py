"""A policy whose weight of the global model is always at its floor."""

from typing import ClassVar

from paceline.core.chief.advice import other_mix
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.policies.policy import build_policy

ABOVE = 0.05
"""Mean weight above the floor from which on it is not always there: a slow worker's is, a fast one's is not (ratio)."""


class AlphaFloor(Cause):
    """Evidence: with this many equal workers the policy's formula gives its floor ([SHAT] equation 4), and so it was measured:
    how old a worker's weights are then changes nothing. The setting: a fixed weight, or another reading."""

    is_warned: ClassVar[bool] = True

    def look(self, evidence: Evidence) -> Finding | None:
        policy = build_policy(evidence.config.policy)
        said = policy.idles(evidence.members)
        floor = float(getattr(policy, "alpha_min", 0.0))
        seen = [worker.alpha for worker in evidence.workers if worker.alpha is not None]
        if not said or not seen or max(seen) > floor + ABOVE:
            return None
        more = f"{said}: with any staleness a worker takes {sum(seen) / len(seen):.2f} of the servers' model"
        return Finding(1 - floor, more, other_mix())

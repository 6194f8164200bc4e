"""Processes that die again and again."""

from paceline.core.chief.advice import Advice
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence

MANY = 3
"""Restarts in all of a run that are no accident any more."""
OFTEN = 600.0
"""Mean time between two of them that is often (seconds)."""
COSTS = 5.0
"""Seconds that a start takes at least: imports, joining, what is computed or sent again."""


class Restarts(Cause):
    """Evidence: how often each process was started again, without starts of all of them, which are a resumed run's. The
    remedy lies in what ends them: their logs say it."""

    def look(self, evidence: Evidence) -> Finding | None:
        count = sum(evidence.restarts.values())
        if count < MANY or evidence.age > count * OFTEN:
            return None
        worst = max(evidence.restarts, key=lambda name: (evidence.restarts[name], name))
        which = ", ".join(f"{name} {times}" for name, times in sorted(evidence.restarts.items()))
        said = (
            f"processes were started again {count} times in {evidence.age:.0f} s ({which}); each time the others wait, or go "
            "on without it"
        )
        share = min(1.0, count * COSTS / max(1.0, evidence.age))
        return Finding(
            share, said, Advice(f"what its log says of its end: the error, or the signal (logs/{worst}.log)")
        )

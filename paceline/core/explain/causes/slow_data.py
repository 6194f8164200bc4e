"""Examples that come more slowly than they are computed with."""

from paceline.core.chief.advice import Advice
from paceline.core.chief.worker_time import OWN
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.laggards import laggards, times

MUCH = 0.3
"""Share of the time outside of waiting that loading may take: examples in memory take a few per cent."""
LEAST = 0.001
"""Seconds of a step that are worth a word."""


class SlowData(Cause):
    """Evidence: seconds of a step in which the worker loads examples: reads rows, runs the task's `prepare`, waits for the
    script's loader. The remedy: load ahead in other processes, or prepare the examples once."""

    def look(self, evidence: Evidence) -> Finding | None:
        found = laggards(evidence)
        if found is not None and found.part == "data":
            said = f"{found.told}, which loads its examples {times(found.factor)} ({1000 * found.each:.3g} ms a step)"
            return Finding(found.share, said, self._advice(evidence), workers=found.workers)
        share, each = evidence.share("data"), evidence.each("data")
        if evidence.share("data", within=OWN) < MUCH or each < LEAST:
            return None
        said = f"{share:.0%} of the workers' time goes into loading examples ({1000 * each:.3g} ms a step)"
        return Finding(share, said, self._advice(evidence))

    @staticmethod
    def _advice(evidence: Evidence) -> Advice:
        if evidence.config.is_script:
            return Advice("num_workers=4 of the script's loader, which loads ahead, or examples that are prepared once")
        return Advice("to do what prepare() does once, in data(), or examples that fit into memory")

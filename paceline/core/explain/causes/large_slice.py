"""One server whose slice of the model is much larger than the others'."""

from paceline.core.chief.advice import Advice
from paceline.core.chief.straggler import FACTOR
from paceline.core.chief.worker_time import OWN
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.exchanges import LARGE, is_of_one_link
from paceline.core.units import size

MUCH = 0.25
"""Share of the time outside of waiting that goes into exchanges at least."""


class LargeSlice(Cause):
    """Evidence: the bytes of each server's slice, next to their mean; exchanges, which last as long as the largest slice's,
    take much of the workers' time. The setting: cuts by memory, not by layer."""

    def look(self, evidence: Evidence) -> Finding | None:
        exchange = evidence.share("exchange", within=OWN)
        if evidence.unevenness < FACTOR or exchange < MUCH or is_of_one_link(evidence):
            return None
        largest = max(evidence.servers, key=lambda server: server.slice_bytes)
        if largest.slice_bytes < LARGE:
            return None
        whole = sum(server.slice_bytes for server in evidence.servers)
        said = (
            f"{largest.name} holds {size(largest.slice_bytes)} of the model's {size(whole)}, {evidence.unevenness:.1f} times "
            f"its share, and pushes and pulls, which last as long as its own, take {evidence.share('exchange'):.0%} of the "
            f"workers' time"
        )
        share = evidence.share("exchange") * (1 - 1 / evidence.unevenness)
        return Finding(share, said, self._advice(evidence))

    @staticmethod
    def _advice(evidence: Evidence) -> Advice:
        plan = evidence.config.plan
        if plan.slices != "memorywise":
            return Advice("plan.slices=memorywise, which cuts large layers, too", ("plan.slices=memorywise",))
        if plan.max_slice_bytes:
            return Advice(f"a lower plan.max_slice_bytes (it is {plan.max_slice_bytes:,})")
        return Advice("fewer servers")

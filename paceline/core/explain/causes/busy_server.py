"""A server that has more to do than it can."""

from paceline.core.chief.advice import Advice
from paceline.core.chief.straggler import FACTOR
from paceline.core.chief.worker_time import LEAST, OWN
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.exchanges import LARGE, SERVICE, are_of_few_examples, fewer_bytes, is_of_one_link

MOST = 0.4
"""Share of the time outside of waiting that goes into exchanges at least."""
FULL = 0.6
"""CPU time by time from which on a server is the bottleneck (ratio): its calls come in bursts."""
WORTH = 0.25
"""Share of all the workers' time that is worth another server."""


class BusyServer(Cause):
    """Evidence: exchanges take much of the workers' time, and a server computes nearly all the time, or a push of each worker,
    if that is long, takes it more CPU time than a step takes a worker: with any number of cores the others then wait for it.
    The setting: more servers, or fewer pushes. A short run says nothing: what a server does once, like its last snapshot, would
    count as the work of every push."""

    def look(self, evidence: Evidence) -> Finding | None:
        busiest, share = evidence.busiest, evidence.share("exchange")
        if evidence.seconds < LEAST:
            return None
        if is_of_one_link(evidence) or evidence.share("exchange", within=OWN) < MOST or evidence.unevenness >= FACTOR:
            return None
        work = busiest.service * len(evidence.workers)
        step = evidence.each("cpu") or evidence.each("compute")
        is_long = busiest.service >= SERVICE and work >= step
        if (
            not busiest.pushes
            or not (is_long or busiest.load >= FULL)
            or share < WORTH
            or are_of_few_examples(evidence)
        ):
            return None
        said = (
            f"{share:.0%} of the workers' time goes into pushes and pulls, and {busiest.name} is busy: {len(evidence.workers)} "
            f"pushes, one of each worker, take it {1000 * work:.3g} ms of CPU time, a step a worker {1000 * step:.3g} ms"
        )
        return Finding(share, said, self._advice(evidence, busiest.slice_bytes))

    @staticmethod
    def _advice(evidence: Evidence, slice_bytes: int) -> Advice:
        if slice_bytes < LARGE:
            return fewer_bytes(evidence, evidence.traffic)
        more = f"servers={2 * len(evidence.servers)}"
        return Advice(f"{more}, each with a smaller slice", (more,))

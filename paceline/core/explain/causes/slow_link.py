"""A network that is slow for one worker, or for all."""

from paceline.core.chief.worker_time import OWN
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.exchanges import LARGE, LATE, fewer_bytes
from paceline.core.explain.laggards import laggards, times
from paceline.core.units import size

MOST = 0.5
"""Share of the time outside of waiting that exchanges take at least where the network is slow for all."""
SLOW = 30e6
"""Bytes a second that a network of 1 Gbit/s carries with ease (it has 125e6)."""
IDLE = 0.2
"""CPU time by time of the busiest server, below which it does not explain them (ratio)."""


class SlowLink(Cause):
    """Evidence: seconds of pushes and pulls in a step, without waiting, next to the other workers'. For all workers: most of
    their time goes into exchanges, though the servers are idle, at far less than a local network carries, or if these are
    small with more than 50 ms for each. The setting: fewer bytes, or fewer exchanges."""

    def look(self, evidence: Evidence) -> Finding | None:
        found = laggards(evidence)
        if found is not None and found.part == "exchange":
            if not found.have_links:
                return None  # on the servers' own machine: one of these was away for a while
            said = (
                f"{found.told}, whose pushes and pulls take {times(found.factor)} ({1000 * found.each:.3g} ms for "
                f"{size(found.traffic)}): its network link is slow"
            )
            return Finding(found.share, said, fewer_bytes(evidence, found.traffic), workers=found.workers)
        return self._of_all(evidence)

    @staticmethod
    def _of_all(evidence: Evidence) -> Finding | None:
        each, traffic = evidence.each("exchange"), evidence.traffic
        if evidence.share("exchange", within=OWN) < MOST or evidence.busiest.load >= IDLE:
            return None
        if not evidence.busiest.seconds or not any(worker.has_link for worker in evidence.workers):
            return None  # not known yet, or all on one machine
        if traffic >= SLOW * each if traffic >= LARGE else each < LATE:
            return None
        share = evidence.share("exchange")
        said = (
            f"{share:.0%} of the workers' time goes into pushes and pulls ({1000 * each:.3g} ms for {size(traffic)}), though "
            f"the servers are idle: the network is slow"
        )
        return Finding(share, said, fewer_bytes(evidence, traffic))

"""Complete: everybody is linked to everybody."""

from collections.abc import Iterable

from paceline.core.peers.topology import Members, Topology


class Complete(Topology):
    """All weights are 1/n, so one mixing makes all models equal; n - 1 messages from each member."""

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        return range(len(members))

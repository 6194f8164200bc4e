"""Ring: everybody is linked to the one before and the one after."""

from collections.abc import Iterable

from pydantic import Field

from paceline.core.peers.topology import Members, Topology


class Ring(Topology):
    """[Survey; Lian et al. 2017]: weights 1/3, 1/3, 1/3. `shortcuts` [Survey; Lian et al. 2018]: links to members 2^i + 1 hops
    away both ways, i >= 1, besides 1 hop; all odd, so that the ring keeps its two colours (the survey's i = 0 would be 2 hops,
    to a member of the same colour)."""

    shortcuts: bool = Field(False, description="Also links 3, 5, 9, 17, ... hops away: what one learns spreads sooner.")

    def hops(self, size: int) -> list[int]:
        """The distances that the links of a ring of `size` members span."""
        far = [2**i + 1 for i in range(1, size.bit_length() + 1)] if self.shortcuts else []
        return [hop for hop in (1, *far) if hop < size]

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        size = len(members)
        return [other % size for hop in self.hops(size) for other in (place + hop, place - hop)]

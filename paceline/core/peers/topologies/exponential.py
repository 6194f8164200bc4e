"""Exponential: directed links to the members 1, 2, 4, 8, ... hops on."""

from collections.abc import Iterable

from paceline.core.peers.topology import Members, Topology


class Exponential(Topology):
    """[SHAT; Assran et al. 2019]: with one link used after the other, n = 2^k members have the mean after k exchanges."""

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        size = len(members)
        return [(place + 2**i) % size for i in range(size.bit_length()) if 2**i < size]

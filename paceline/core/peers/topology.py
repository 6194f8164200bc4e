"""A topology decides which members a worker sends to, how much each weighs in a mean, and which may ask which."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule
from paceline.core.settings.config import Options

PACKAGE = "paceline.core.peers.topologies"
SEATS = 1024
"""A member's number modulo this is its rank: a worker that is started again is another member of the same rank."""
Members = tuple[int, ...]
"""Ranks of the workers that count, rising; after departures not 0..n-1. A member's place is its index here."""
Mixing = npt.NDArray[np.float64]
"""n x n by places: row i holds what each member's model weighs in member i's next one."""
Links = Mapping[int, Iterable[int]]

TOLERANCE = 1e-6
"""How far the sum of a row or column may be from 1."""


class Topology(BaseModel, ABC):
    """Which members are linked; computed again whenever the members change. Fields are its options. Holds no state,
    so all threads may share it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rules: ClassVar[tuple[SettingsRule, ...]] = ()
    """What it does not go with."""

    @abstractmethod
    def _reached(self, place: int, members: Members) -> Iterable[int]:
        """Places that the member at `place` sends to, nearest first; repeats and itself are left out by the caller."""

    def neighbours(self, members: Members, rank: int) -> Members:
        """The ranks that `rank` sends to, in the topology's order, none twice."""
        places = dict.fromkeys(self._reached(members.index(rank), members))
        return tuple(members[place] for place in places if members[place] != rank)

    def sources(self, members: Members, rank: int) -> Members:
        """The ranks that send to `rank`, rising."""
        return tuple(other for other in members if rank in self.neighbours(members, other))

    def weights(self, members: Members) -> Mixing:
        """The mixing matrix, doubly stochastic so that mixing keeps the mean. Metropolis-Hastings: W_ij = 1 / (1 +
        max(d_i, d_j)) where j sends to i, d being degrees; W_ii is what is left. ConfigError where it does not mix."""
        size, out = len(members), [self.neighbours(members, rank) for rank in members]
        matrix = np.zeros((size, size))
        for j, reached in enumerate(out):
            for i in map(members.index, reached):
                matrix[i, j] = 1 / (1 + max(len(out[i]), len(reached)))
        np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
        return checked(matrix)

    def two_colours(self, members: Members) -> tuple[frozenset[int], frozenset[int]]:
        """(active, passive): actives ask, passives only answer (AD-PSGD). Links between equal colours are not used, and the
        others still connect all members: the colours alternate round the ring if that connects them, or follow the distance
        from the first member if not. Actives never outnumber passives: an odd ring has one passive more."""
        links = self._links(members)
        active = frozenset(members[1::2])
        if len(distances(_between(links, active), members[0])) < len(members):
            active = frozenset(rank for rank, steps in distances(links, members[0]).items() if steps % 2)
        passive = frozenset(members) - active
        return (active, passive) if len(active) <= len(passive) else (passive, active)

    def partners(self, members: Members, rank: int) -> Members:
        """The ranks of the other colour that `rank` is linked to, rising."""
        active, _ = self.two_colours(members)
        return tuple(sorted(_between(self._links(members), active)[rank]))

    def _links(self, members: Members) -> dict[int, set[int]]:
        """All links, both ways."""
        links: dict[int, set[int]] = {rank: set() for rank in members}
        for rank in members:
            for other in self.neighbours(members, rank):
                links[rank].add(other)
                links[other].add(rank)
        return links


def _between(links: Mapping[int, set[int]], one: frozenset[int]) -> dict[int, set[int]]:
    """The links from `one` colour to the other, both ways."""
    return {rank: {other for other in others if (other in one) != (rank in one)} for rank, others in links.items()}


def distances(links: Links, start: int) -> dict[int, int]:
    """Links on the shortest way from `start` to each that can be reached."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        here = waiting.popleft()
        for other in links[here]:
            if other not in found:
                found[other] = found[here] + 1
                waiting.append(other)
    return found


def checked(matrix: Mixing) -> Mixing:
    """The matrix; ConfigError where mixing by it would lose the mean or never make all models equal."""
    wrong = fault(matrix)
    if wrong:
        raise ConfigError(wrong)
    return matrix


def fault(matrix: Mixing) -> str | None:
    """What is wrong with a mixing matrix, as a sentence; None where nothing is."""
    size = len(matrix)
    if size == 0 or matrix.shape != (size, size):
        return f"a mixing matrix has as many columns as rows, at least one; got {matrix.shape}."
    bad = np.argwhere(~(matrix >= 0) | np.isinf(matrix))
    if len(bad):
        i, j = bad[0]
        return f"row {i}, column {j} is {matrix[i, j]:g}; a weight is a number from 0 to 1."
    for what, sums in (("row", matrix.sum(axis=1)), ("column", matrix.sum(axis=0))):
        worst = int(np.argmax(np.abs(sums - 1)))
        off = sums[worst] - 1
        if abs(off) > TOLERANCE:
            much = f"{abs(off):.3g} too {'much' if off > 0 else 'little'}"
            return (
                f"{what} {worst} sums to {sums[worst]:.8g}, {much}. Rows and columns must sum to 1 (within "
                f"{TOLERANCE:g}), or the mean of all models drifts."
            )
    if not matrix.diagonal().all():
        row = int(np.argmin(matrix.diagonal()))
        return f"row {row} gives its own model the weight 0: models could swap forever. Make its diagonal positive."
    for links in (matrix, matrix.T):
        lost = set(range(size)) - set(distances({i: np.flatnonzero(links[i]).tolist() for i in range(size)}, 0))
        if lost:
            return f"members 0 and {min(lost)} are not connected, so that their models never meet. Add weights that link them."
    return None


def build_topology(options: Options) -> Topology:
    """The topology that the config names, its options checked."""
    return registry.build(PACKAGE, Topology, options.name, options.options, "topology")

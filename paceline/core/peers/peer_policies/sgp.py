"""SGP: in each round everybody sends half of its model to one other, the next of its links by turns."""

from collections.abc import Collection
from typing import ClassVar

import numpy as np
from pydantic import PrivateAttr

from paceline.core.peers.peer_policy import Group, Kind, Message, PushSum, Welcome
from paceline.core.peers.topology import Members
from paceline.core.values import Vector


class Sgp(PushSum):
    """Stochastic gradient push [SHAT; Assran et al. 2019]: with z = x / w the model, x <- x - lr * g(z); (x, w) / 2 goes to
    the member 2^i hops on at iteration i; x and w are what was kept plus what came. One waits for who sends to one in this
    round. When the members change, each says which rounds it has sent to others; weights make up for what is missing."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"model", "note"})
    usual_topology: ClassVar[str] = "exponential"
    waits: ClassVar[bool] = True
    _links: dict[int, Members] = PrivateAttr(default_factory=dict)
    """The ranks that each member sends to."""
    _sent: int = PrivateAttr(0)
    """The last round in which I have sent."""
    _noted: dict[int, int] = PrivateAttr(default_factory=dict)
    """Up to which round no message may come from a member, because it was sent to another."""
    _came: list[Message] = PrivateAttr(default_factory=list)

    def _arrange(self) -> None:
        members = self._group.members
        self._links = {rank: self._topology.neighbours(members, rank) for rank in members}

    def _partner(self, rank: int) -> int | None:
        """The rank that a member sends to in this round."""
        links = self._links[rank]
        return links[(self._round - 1) % len(links)] if links else None

    def _push(self, gradient: Vector | None) -> list[Message]:
        if gradient is not None:
            self._descend(gradient, 1 / self._weight)
        self._sent = self._round
        partner = self._partner(self._rank)
        return [] if partner is None else [self._half(partner)]

    def _take(self, message: Message) -> list[Message]:
        if message.kind == "note":
            self._noted[message.sender] = max(message.round, self._noted.get(message.sender, 0))
        else:
            self._came.append(message)
        return []

    def _missing(self) -> Collection[int]:
        here = {message.sender for message in self._came if message.round == self._round}
        others = (rank for rank in self._others() if self._partner(rank) == self._rank and rank not in here)
        return [rank for rank in others if self._noted.get(rank, 0) < self._round]

    def _close(self) -> list[Message]:
        due = [message for message in self._came if message.round <= self._round]
        self._came = [message for message in self._came if message.round > self._round]
        for message in sorted(due, key=lambda message: (message.round, message.sender)):
            self._mix(message)
        return []

    def _regrouped(self, before: Group) -> list[Message]:
        self._noted = {rank: round for rank, round in self._noted.items() if rank in self._group.members}
        return self._notes()

    def join(self, welcome: Welcome) -> list[Message]:
        super().join(welcome)
        self._sent = welcome.round
        return self._notes()

    def _notes(self) -> list[Message]:
        nothing = np.empty(0, np.float32)
        view = self._group.view
        return [Message("note", self._rank, to, view, self._sent, nothing, weight=0.0) for to in self._others()]

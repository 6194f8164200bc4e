"""D-PSGD: in each round everybody mixes its model with its neighbours' models of the same round."""

from collections.abc import Collection
from typing import ClassVar

from pydantic import PrivateAttr

from paceline.core.peers.peer_policy import Group, Kind, Message, PeerPolicy, Welcome
from paceline.core.peers.topology import Members
from paceline.core.values import Vector


class Dpsgd(PeerPolicy):
    """[Survey; Lian et al. 2017]: g at x_i, meanwhile y = sum_j W_ij x_j over the neighbours; x_i <- y - lr * g. A member waits
    for its neighbours only. When the members change during a round, new neighbours send each other their newest model, and a
    member that is behind mixes with that until it has caught up: so the one furthest behind never waits."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"model", "newest"})
    waits: ClassVar[bool] = True
    _weights: dict[int, float] = PrivateAttr(default_factory=dict)
    """My row of W, without my own."""
    _sent: Vector | None = PrivateAttr(None)
    """My model at the start of the round."""
    _came: dict[int, dict[int, Vector]] = PrivateAttr(default_factory=dict)
    """By sender and round."""
    _newest: dict[int, Message] = PrivateAttr(default_factory=dict)
    """By sender: what stands for its models of the rounds before I knew it as a neighbour."""

    def _arrange(self) -> None:
        members = self._group.members
        row = self._topology.weights(members)[members.index(self._rank)]
        self._weights = {rank: row[members.index(rank)] for rank in self._topology.sources(members, self._rank)}

    def _open(self) -> list[Message]:
        self._sent = self._own.local.copy()
        return [self._message("model", rank, self._sent) for rank in self._reached(self._group)]

    def _push(self, gradient: Vector | None) -> list[Message]:
        return []

    def _take(self, message: Message) -> list[Message]:
        known = self._newest.get(message.sender)
        if message.kind == "newest" and (known is None or known.round < message.round):
            self._newest[message.sender] = message
        elif message.kind == "model":
            self._came.setdefault(message.sender, {})[message.round] = message.values
        return []

    def _model_of(self, rank: int) -> Vector | None:
        """The neighbour's model to mix with in this round."""
        newest = self._newest.get(rank)
        late = newest.values if newest is not None and newest.round >= self._round else None
        return self._came.get(rank, {}).get(self._round, late)

    def _missing(self) -> Collection[int]:
        return [rank for rank in self._weights if self._model_of(rank) is None]

    def _close(self) -> list[Message]:
        from paceline.core import kernels

        local = self._own.local
        kernels.scale_into(local, local, 1 - sum(self._weights.values()))
        for rank, weight in self._weights.items():
            model = self._model_of(rank)
            assert model is not None
            kernels.add_scaled(local, model, weight)
        self._came = {
            rank: {round: model for round, model in came.items() if round > self._round}
            for rank, came in self._came.items()
            if rank in self._group.members
        }
        if self._gradient is not None:
            self._descend(self._gradient)
        return []

    def _regrouped(self, before: Group) -> list[Message]:
        for known in (self._came, self._newest):
            for rank in known.keys() - set(self._group.members):
                del known[rank]
        old = self._reached(before)
        return self._tell([rank for rank in self._reached(self._group) if rank not in old])

    def join(self, welcome: Welcome) -> list[Message]:
        super().join(welcome)
        self._sent = welcome.model
        return self._tell(self._reached(self._group))

    def _tell(self, ranks: Collection[int]) -> list[Message]:
        return [] if self._sent is None else [self._message("newest", rank, self._sent) for rank in ranks]

    def _reached(self, group: Group) -> Members:
        return self._topology.neighbours(group.members, self._rank)

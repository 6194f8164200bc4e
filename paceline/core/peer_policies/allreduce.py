"""AllReduce: all members step on the mean of their gradients, which a ring adds up without a server."""

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import PrivateAttr

from paceline.core.peer_policy import Group, Kind, Message, PeerPolicy, Welcome
from paceline.core.values import Vector


class Allreduce(PeerPolicy):
    """AllReduce-SGD [Survey]; the ring: Patarasu and Yuan 2009. The gradient is cut into n chunks. At hop h = 0..2n-3 the
    member at place p sends chunk p - h (mod n) to p + 1 and gets chunk p - 1 - h: for h < n - 1 it adds it to its own, from
    then on it is complete and is copied. Each sends 2 (n - 1) / n of the gradient, for any n. x <- x - lr * sum / count.
    The ring is all members by rank, whatever the topology; when they change, the round begins anew among those that have not
    finished it. Who has hands its mean on to who asks: so all that stay have taken the same steps."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"part", "mean"})
    may_round: ClassVar[bool] = False  # the members' models would drift apart
    _place: int = PrivateAttr()
    _size: int = PrivateAttr()
    _total: Vector = PrivateAttr()
    _count: float = PrivateAttr()
    """Gradients in the chunk that came last."""
    _hop: int = PrivateAttr(0)
    _came: dict[tuple[int, int, int], Message] = PrivateAttr(default_factory=dict)
    """By view, round and hop: what came before its turn."""
    _mean: Message | None = PrivateAttr(None)
    """Sum and count of the last round that I finished."""

    def _arrange(self) -> None:
        members = self._group.members
        self._place, self._size = members.index(self._rank), len(members)

    def _push(self, gradient: Vector | None) -> list[Message]:
        self._total = np.zeros_like(self._own.local) if gradient is None else gradient.copy()
        self._count, self._hop = float(gradient is not None), 0
        return self._send() + self._reduce()

    def _take(self, message: Message) -> list[Message]:
        if message.view < self._group.view:
            return []  # of a ring that is no more
        if message.kind == "part":
            self._came[message.view, message.round, message.hop] = message
        elif message.round == self._round and self._phase == "waiting":
            self._total, self._count, self._hop = message.values, message.weight, self._hops()
            return [replace(message, sender=self._rank, to=self._around(-1)), *self._reduce()]
        return self._reduce()

    def _reduce(self) -> list[Message]:
        """Goes as many hops as messages are there for."""
        from paceline.core import kernels

        sent: list[Message] = []
        while self._missing() and (message := self._came.pop((self._group.view, self._round, self._hop), None)):
            mine = self._chunk(-1 - self._hop)
            if self._hop < self._size - 1:
                kernels.add_scaled(mine, message.values, 1.0)
                self._count = message.weight + (self._gradient is not None)
            else:
                kernels.mix(mine, message.values, 1.0)
                self._count = message.weight
            self._hop += 1
            sent += self._send()
        return sent + self._hand_on()

    def _missing(self) -> Collection[int]:
        return () if self._phase != "waiting" or self._hop == self._hops() else (self._around(-1),)

    def _close(self) -> list[Message]:
        if self._count:
            self._descend(self._total, 1 / self._count)
        self._mean = replace(self._message("mean", self._rank, self._total), weight=self._count)
        return self._hand_on()

    def _hand_on(self) -> list[Message]:
        """The mean of the last round, to whoever is still in it because its view came before the end."""
        over = self._round - (self._phase != "idle")
        late = [key for key in self._came if key[0] == self._group.view and key[1] <= over]
        askers = {self._came.pop(key).sender for key in late}
        return (
            [] if self._mean is None else [replace(self._mean, to=to, view=self._group.view) for to in sorted(askers)]
        )

    def _regrouped(self, before: Group) -> list[Message]:
        self._came = {key: message for key, message in self._came.items() if key[0] >= self._group.view}
        return self._push(self._gradient) if self._phase == "waiting" else self._hand_on()

    def welcome(self) -> Welcome:
        return replace(super().welcome(), mean=self._mean)

    def join(self, welcome: Welcome) -> list[Message]:
        self._mean = None if welcome.mean is None else replace(welcome.mean, sender=self._rank)
        return super().join(welcome)

    def _send(self) -> list[Message]:
        if not self._missing():
            return []
        part = self._message("part", self._around(1), self._chunk(-self._hop))
        return [replace(part, hop=self._hop, weight=self._count)]

    def _hops(self) -> int:
        return 2 * (self._size - 1)

    def _around(self, steps: int) -> int:
        return self._group.members[(self._place + steps) % self._size]

    def _chunk(self, steps: int) -> Vector:
        """My copy of the chunk so many places after my own."""
        number, length = (self._place + steps) % self._size, len(self._total)
        return self._total[number * length // self._size : (number + 1) * length // self._size]

"""AllReduce: all members step on the mean of their gradients, which a ring adds up without a server."""

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar
from weakref import ref

import numpy as np
from pydantic import PrivateAttr

from paceline.core.codecs.codec import Codec
from paceline.core.errors import BadPush
from paceline.core.peers.peer_policy import Group, Kind, Message, PeerPolicy, Welcome
from paceline.core.values import Vector


class Buffers:
    """Vectors of one length, used again and again: fresh memory costs a page fault for every few kilobytes. One of which a lent
    view is still held by anybody is not given out again. Not thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Vector] = []
        self._lent: list[ref[Vector]] = []

    def take(self, like: Vector) -> Vector:
        """One with any values in it."""
        self._lent = [lent for lent in self._lent if lent() is not None]
        held = [view.base for lent in self._lent if (view := lent()) is not None]
        for place, buffer in enumerate(self._idle):
            if not any(buffer is base for base in held):
                return self._idle.pop(place)
        return np.empty_like(like)

    def give_back(self, *buffers: Vector) -> None:
        """They are used no more, but for what is lent of them."""
        self._idle += [buffer for buffer in buffers if buffer.base is None]

    def lend(self, view: Vector) -> Vector:
        """A view of one, for somebody who may hold it for any time; this very object."""
        self._lent.append(ref(view))
        return view


class Allreduce(PeerPolicy):
    """AllReduce-SGD [Survey]; the ring: Patarasu and Yuan 2009. The gradient is cut into n pieces. At hop h = 0..2n-3 the
    member at place p sends piece p - h (mod n) to p + 1 and gets piece p - 1 - h: for h < n - 1 it adds it to its own; after
    that the piece is complete and is copied. Each sends 2 (n - 1) / n of the gradient, for any n. x <- x - lr * sum / count,
    where a gradient is weighted, and counts, by its examples.
    Sums may be sent rounded; all members get the same rounded complete ones.
    The ring is all members by their numbers, in every topology; when they change, the round starts again among those that
    have not finished it. A member that has finished gives its mean to those that ask: so all that stay have taken the same
    steps."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"part", "mean"})
    averages: ClassVar[bool] = False  # gradients are
    same_steps: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    _place: int = PrivateAttr()
    _size: int = PrivateAttr()
    _buffers: Buffers = PrivateAttr(default_factory=Buffers)
    _total: Vector = PrivateAttr()
    """The sum of the gradients; a piece of it is valid once its hop is done."""
    _inbox: Vector = PrivateAttr()
    """What others have summed of each piece, before mine is added."""
    _count: float = PrivateAttr()
    """Gradients in the piece that came last, each by its examples."""
    _share: float = PrivateAttr(1.0)
    """Of my gradient."""
    _hop: int = PrivateAttr(0)
    _came: dict[tuple[int, int, int], Message] = PrivateAttr(default_factory=dict)
    """By view, round and hop: what came before its turn."""
    _mean: Message | None = PrivateAttr(None)
    """Sum and count of the last round that I finished."""

    def may_send(self, codec: Codec) -> bool:
        return codec.keeps_rounded  # otherwise the members' models would drift apart

    def _arrange(self) -> None:
        members = self._group.members
        self._place = members.index(self._rank)
        self._size = len(members)

    def _open(self) -> list[Message]:
        self._hop = 0
        like = self._own.local
        self._total = self._buffers.take(like)
        self._inbox = self._buffers.take(like)
        return []

    def step(self, gradient: Vector | None, share: float = 1.0) -> list[Message]:
        self._share = share
        return super().step(gradient if gradient is None or share == 1 else gradient * np.float32(share))

    def _push(self, gradient: Vector | None) -> list[Message]:
        self._count = 0.0 if gradient is None else self._share
        np.copyto(self._chunk(0), 0.0 if gradient is None else self._chunk(0, gradient))
        return self._send() + self._reduce()

    def room(self, kind: Kind, view: int, round: int, hop: int) -> Vector | None:
        is_mine = self._phase != "idle" and (kind, view, round) == ("part", self._group.view, self._round)
        if not (is_mine and self._hop <= hop < self._hops()):
            return None
        return self._buffers.lend(self._chunk(-1 - hop, self._inbox if hop < self._size - 1 else self._total))

    def _take(self, message: Message) -> list[Message]:
        if message.view < self._group.view:
            return []  # of a ring that is no more
        if message.kind == "part":
            self._check(message)
            self._came[message.view, message.round, message.hop] = message
        elif message.round == self._round and self._phase == "waiting":
            self._buffers.give_back(self._total)
            self._total = message.values
            self._count = message.weight
            self._hop = self._hops()
            lent = self._buffers.lend(self._total[:])
            return [replace(message, sender=self._rank, to=self._around(-1), values=lent), *self._reduce()]
        return self._reduce()

    def _check(self, message: Message) -> None:
        """Of this ring's, as soon as there is one."""
        if message.view != self._group.view or not self._hops():
            return
        wanted = len(self._chunk(-1 - message.hop, self._own.local))
        if message.hop >= self._hops() or message.sender != self._around(-1) or len(message.values) != wanted:
            raise BadPush(
                f"Rank {message.sender} sent {len(message.values):,} values as hop {message.hop}; rank {self._rank} expects "
                f"{wanted:,} of rank {self._around(-1)}, as hops 0 to {self._hops() - 1}. Use one config for all."
            )

    def _reduce(self) -> list[Message]:
        """Takes as many hops as it has messages for."""
        sent: list[Message] = []
        while self._missing() and (message := self._came.pop((self._group.view, self._round, self._hop), None)):
            self._check(message)
            total, came, gradient = self._chunk(-1 - self._hop), message.values, self._gradient
            self._count = message.weight
            if self._hop < self._size - 1 and gradient is not None:
                np.add(self._chunk(-1 - self._hop, gradient), came, out=total)
                self._count += self._share
            elif not np.may_share_memory(total, came):  # otherwise it has come to its room
                np.copyto(total, came)
            self._hop += 1
            if self._hop == self._size - 1:  # my piece is complete: I keep what the others get
                self._codec.round(total)
            sent += self._send()
        return sent + self._hand_on()

    def _missing(self) -> Collection[int]:
        return () if self._phase != "waiting" or self._hop == self._hops() else (self._around(-1),)

    def _close(self) -> list[Message]:
        if self._count:
            self._descend(self._total, 1 / self._count)
        if self._mean is not None:
            self._buffers.give_back(self._mean.values)
        self._buffers.give_back(self._inbox)
        self._mean = replace(self._message("mean", self._rank, self._total), weight=self._count)
        return self._hand_on()

    def _hand_on(self) -> list[Message]:
        """Sends the mean of the last round to members that are still in it because their view came before the end."""
        late = [key for key in self._came if key[0] == self._group.view and key[1] <= self._over]
        askers, mean = {self._came.pop(key).sender for key in late}, self._mean
        if mean is None or not askers:
            return []
        lent = replace(mean, values=self._buffers.lend(mean.values[:]), view=self._group.view)
        return [replace(lent, to=to) for to in sorted(askers)]

    def _regrouped(self, before: Group) -> list[Message]:
        self._came = {key: message for key, message in self._came.items() if key[0] >= self._group.view}
        if self._phase == "idle":
            return self._hand_on()
        self._buffers.give_back(self._total, self._inbox)
        self._open()
        return self._push(self._gradient) if self._phase == "waiting" else self._hand_on()

    def welcome(self) -> Welcome:
        mean = self._mean and replace(self._mean, values=self._mean.values.copy())
        return replace(super().welcome(), mean=mean, lr=self._own.lr)

    def join(self, welcome: Welcome) -> list[Message]:
        self._mean = None if welcome.mean is None else replace(welcome.mean, sender=self._rank)
        if welcome.lr is not None:
            self._own.lr = welcome.lr
        return super().join(welcome)

    # the ring
    def _send(self) -> list[Message]:
        if not self._missing():
            return []
        part = self._message("part", self._around(1), self._buffers.lend(self._chunk(-self._hop)))
        return [replace(part, hop=self._hop, weight=self._count)]

    def _hops(self) -> int:
        return 2 * (self._size - 1)

    def _around(self, steps: int) -> int:
        return self._group.members[(self._place + steps) % self._size]

    def _chunk(self, steps: int, of: Vector | None = None) -> Vector:
        """The piece of the sum (or of `of`) that is `steps` places after my own."""
        whole = self._total if of is None else of
        number, length = (self._place + steps) % self._size, len(whole)
        return whole[number * length // self._size : (number + 1) * length // self._size]

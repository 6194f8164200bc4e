"""AllReduce: all members step on the mean of their gradients, which a ring adds up without a server."""

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.coding.codec import Codec
from paceline.core.errors import BadPush
from paceline.core.peers.buffers import Buffers
from paceline.core.peers.peer_policy import Group, Kind, Meeting, Message, PeerPolicy, Welcome
from paceline.core.values import Vector

_AGAIN = 16
"""Rounds from one try to form a group for collective operations to the next."""


class Allreduce(PeerPolicy):
    """AllReduce-SGD [Survey]; the ring: Patarasu and Yuan 2009. The gradient is cut into n pieces. At hop h = 0..2n-3 the
    member at place p sends piece p - h (mod n) to p + 1 and gets piece p - 1 - h: for h < n - 1 it adds it to its own; after
    that the piece is complete and is copied. Each sends 2 (n - 1) / n of the gradient, for any n. x <- x - lr * sum / count,
    where a gradient is weighted, and counts, by its examples.
    Sums may be sent rounded; all members get the same rounded complete ones.
    The ring is all members by their numbers, in every topology; when they change, the round starts again among those that
    have not finished it. A member that has finished gives its mean to those that ask: so all that stay have taken the same
    steps.
    `by: torch`: the members of a view meet in rounds 1, 17, 33, ..., and from then on a collective adds up. A round still has
    one sum: a member that can't get it from the collective falls back to the ring until then and makes its successor do so (its
    part says that). The ring is complete only where all have fallen back; a member that has had the sum sends it on as a
    mean."""

    by: Literal["ring", "torch"] = Field(
        "ring",
        description="Who adds gradients up: our ring, or torch.distributed by NCCL or Gloo, with the ring if that"
        " fails.",
    )

    kinds: ClassVar[frozenset[Kind]] = frozenset({"part", "mean", "meet"})
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
    _meeting: Meeting | None = PrivateAttr(None)
    """Whose collective adds up; None: the ring does."""
    _door: Message | None = PrivateAttr(None)
    """Where the newest meeting is, as its first member says."""
    _fell_back: int = PrivateAttr(-1)
    """The round in which I did."""

    def may_send(self, codec: Codec) -> bool:
        keeps = codec.keeps_rounded  # otherwise the members' models would drift apart
        return codec.lossless if self.by == "torch" else keeps

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
        return [] if self._meets() else self._go_round(gradient)

    def _go_round(self, gradient: Vector | None) -> list[Message]:
        """The ring begins; a collective's sum of this round would come too late from now on."""
        self._fall_back()
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
            if self._awaits_sum and self._others_are_ahead():
                return self._go_round(self._gradient)
        elif message.kind == "meet":
            self._enter(message)
        elif message.round == self._round and self._phase == "waiting":
            self._fall_back()
            self._have(message.values, message.weight)
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
        self._meeting = None
        if self._phase == "idle":
            return self._hand_on()
        self._buffers.give_back(self._total, self._inbox)
        self._open()
        return self._go_round(self._gradient) if self._phase == "waiting" else self._hand_on()

    def welcome(self) -> Welcome:
        mean = self._mean and replace(self._mean, values=self._mean.values.copy())
        return replace(super().welcome(), mean=mean, lr=self._own.lr)

    def join(self, welcome: Welcome) -> list[Message]:
        self._mean = None if welcome.mean is None else replace(welcome.mean, sender=self._rank)
        if welcome.lr is not None:
            self._own.lr = welcome.lr
        return super().join(welcome)

    # by a collective
    @property
    def meets(self) -> bool:
        return self.by == "torch"

    def meeting(self) -> Meeting | None:
        found, door = self._meeting, self._door
        if found is None:
            return None
        where = found.view, found.first, found.members[0]
        if found.port is None and door is not None and (door.view, door.round, door.sender) == where:
            found = self._meeting = replace(found, port=int(door.values[0]))
        return (
            replace(found, round=self._round, gradient=self._gradient, share=self._share) if self._awaits_sum else found
        )

    def meet_at(self, meeting: Meeting, port: int) -> list[Message]:
        if not meeting.is_same(self._meeting):
            return []
        self._door = replace(self._message("meet", self._rank, np.array([port], np.float32)), round=meeting.first)
        return [replace(self._door, to=to) for to in self._others()]

    def summed(self, meeting: Meeting, total: Vector | None, count: float = 0.0) -> list[Message]:
        if not (self._awaits_sum and meeting.is_same(self._meeting) and meeting.round == self._round):
            return []
        if total is None:
            return self._go_round(self._gradient) + self._close_if_complete()
        self._have(total, count)
        return self._close_if_complete()

    def _meets(self) -> bool:
        """Whether the sum of the round that begins is to come from a collective."""
        is_due = self._round % _AGAIN == 1 and self._round > self._fell_back + 1  # by then all have fallen back
        if self._meeting is None and self.by == "torch" and self._size > 1 and is_due:
            self._meeting = Meeting(self._group.view, self._round, self._group.members, self._place)
        return self._meeting is not None and not self._others_are_ahead()

    def _fall_back(self) -> None:
        if self._meeting is not None:
            self._meeting = None
            self._fell_back = self._round

    @property
    def _awaits_sum(self) -> bool:
        return self._meeting is not None and self._phase == "waiting" and self._hop < self._hops()

    def _others_are_ahead(self) -> bool:
        """Whether another member uses the ring already, in this round or in a later one."""
        return any(view == self._group.view and round >= self._round for view, round, _ in self._came)

    def _enter(self, door: Message) -> None:
        """Of a member that is the first one, in its own view at least."""
        if len(door.values) != 1 or not 0 < door.values[0] < 1 << 16:
            raise BadPush(f"Rank {door.sender} sent {door.values[:3]} as the port to meet on; expected 1 to 65535.")
        if self._door is None or (self._door.view, self._door.round) < (door.view, door.round):
            self._door = door

    def _have(self, total: Vector, count: float) -> None:
        """The sum has come whole."""
        self._buffers.give_back(self._total)
        self._total = total
        self._count = count
        self._hop = self._hops()

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

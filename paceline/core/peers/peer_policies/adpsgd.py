"""AD-PSGD: whenever it likes, an active member averages its model with one passive neighbour's; nobody else waits."""

from collections.abc import Collection
from typing import ClassVar

import numpy as np
from pydantic import PrivateAttr

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.peers.peer_policy import Group, Kind, Message, PeerPolicy
from paceline.core.peers.topology import Members
from paceline.core.values import Vector


class Adpsgd(PeerPolicy):
    """[Survey; Lian et al. 2018]: while it computes g, an active sends its copy a to a random passive p; that computes
    d = (a - p) / 2, adds d to its live model and returns d; the active takes d off its live model; x <- x - lr * g. Adding
    d, not writing the mean, keeps gradients taken meanwhile and the sum of all models. Actives ask, passives only answer, so
    nobody waits in a circle. The step's number makes a repeated ask harmless: it gets the same d again."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"ask", "answer"})
    _partners: Members = PrivateAttr(())
    """The passives that I may ask; none where I am passive."""
    _ask: Message | None = PrivateAttr(None)
    """What this step waits for the answer to."""
    _unanswered: dict[int, int] = PrivateAttr(default_factory=dict)
    """Steps whose answer may still come, and by which member; also a late one is good."""
    _answers: dict[int, Message] = PrivateAttr(default_factory=dict)
    """My last one to each active."""

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """Measured with Adam and AdamW, on wine."""
        is_seen = optimizer.adaptive and members >= 8
        return f"with {optimizer.name} and many workers, a much slower one of them may cost a point" if is_seen else ""

    def _arrange(self) -> None:
        members = self._group.members
        active, _ = self._topology.two_colours(members)
        self._partners = self._topology.partners(members, self._rank) if self._rank in active else ()

    def _open(self) -> list[Message]:
        if not self._partners:
            return []
        self._ask = self._message("ask", self._random.choice(self._partners), self._own.local.copy())
        self._unanswered[self._round] = self._ask.to
        return [self._ask]

    def _push(self, gradient: Vector | None) -> list[Message]:
        if gradient is not None:
            self._descend(gradient)
        return []

    def _take(self, message: Message) -> list[Message]:
        return self._answer(message) if message.kind == "ask" else self._settle(message)

    def _answer(self, ask: Message) -> list[Message]:
        from paceline.core import kernels

        last = self._answers.get(ask.sender)
        if last is None or last.round < ask.round:
            d = ask.values.copy()
            kernels.add_scaled(d, self._own.local, -1.0)
            d *= np.float32(0.5)
            kernels.add_scaled(self._own.local, d, 1.0)
            last = self._answers[ask.sender] = Message("answer", self._rank, ask.sender, ask.view, ask.round, d)
        return [last] if last.round == ask.round else []

    def _settle(self, answer: Message) -> list[Message]:
        from paceline.core import kernels

        if answer.round in self._unanswered:
            del self._unanswered[answer.round]
            kernels.add_scaled(self._own.local, answer.values, -1.0)
            if self._ask is not None and self._ask.round == answer.round:
                self._ask = None
        return []

    def _missing(self) -> Collection[int]:
        return () if self._ask is None else (self._ask.to,)

    def gave_up(self, message: Message) -> None:
        if self._ask is message:
            self._ask = None

    def _regrouped(self, before: Group) -> list[Message]:
        if self._ask is not None and self._ask.to not in self._group.members:
            self._ask = None
        members = self._group.members
        late = {*members, *before.members}  # an answer of who has just left may be under way
        self._unanswered = {step: rank for step, rank in self._unanswered.items() if rank in late}
        self._answers = {rank: answer for rank, answer in self._answers.items() if rank in members}
        return []

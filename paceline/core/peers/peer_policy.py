"""A peer policy decides what a worker sends and to which peers, what it needs before it goes on, and how it mixes what came.

All have one shape, so that a worker's loop only carries out:

    send(policy.start())                    # a step begins: some send while the gradient is computed
    gradient = of a copy of own.local
    send(policy.step(gradient))             # the gradient is ready
    while policy.waits_for(): ...           # until messages, or a new group, end the wait; then the next step

and at any time, from the thread that listens,

    send(policy.receive(message))           # mixes what came, or keeps it for later; the answers
    send(policy.regroup(group))             # others left or joined

`own.local` is always the model itself: the one to take gradients at, to answer readers with and to evaluate."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, PrivateAttr

from paceline.core import registry
from paceline.core.codecs.codec import Codec, load_codec
from paceline.core.errors import ConfigError
from paceline.core.folders import PEERS
from paceline.core.optimizers.effective import Scaled
from paceline.core.peers.topology import Members, Topology
from paceline.core.policies.policy import Own
from paceline.core.settings.config import Options
from paceline.core.values import Places, Vector

PACKAGE = PEERS
Kind = Literal["part", "mean", "model", "newest", "note", "ask", "answer", "update"]


@dataclass(frozen=True, slots=True)
class Group:
    """Who counts: one numbered view of the members' ranks. No rank is given twice: who comes back is a new member."""

    view: int
    """Only grows."""
    members: Members

    def __post_init__(self) -> None:
        if not self.members or list(self.members) != sorted(set(self.members)):
            raise ConfigError(
                f"View {self.view} has the members {self.members}; expected at least one rank, in rising order."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What one member tells another. The values stay as they are until the receiver has taken them."""

    kind: Kind
    sender: int
    to: int
    view: int
    """The sender's."""
    round: int
    """The sender's step, from 1; of an answer, the asker's."""
    values: Vector
    weight: float = 1.0
    """What the gradients in a sum count, the share that a model carries (push-sum), or the rate of an update."""
    hop: int = 0
    """Which of the messages of an all-reduce."""
    places: Places | None = None
    """Of a sparse update."""


@dataclass(frozen=True, slots=True, eq=False)
class Welcome:
    """What a joiner begins with: a member's state, copied between two calls."""

    round: int
    """Steps that are over."""
    model: Vector
    slots: list[Vector]
    steps: int
    mean: Message | None = None
    """Of the last step (all-reduce)."""
    lr: float | None = None
    """Rate of the joiner's first step; None: the one that the chief says."""


class PeerPolicy(Scaled, ABC):
    """One way to train without servers, one worker's half. Fields are its options; one instance serves one worker. Not
    thread-safe: the caller serialises calls (they copy and add, and never block). It must be given each message at most once,
    in any order; asks may be repeated until they are answered. Raises BadPush for lengths that don't fit."""

    model_config = ConfigDict(extra="forbid")
    usual_topology: ClassVar[str] = "ring"
    """Where none is chosen."""
    worker_momentum: ClassVar[bool] = False  # each has its own model and optimizer
    averages: ClassVar[bool] = True
    kinds: ClassVar[frozenset[Kind]]
    """Of the messages that it takes."""

    _rank: int = PrivateAttr()
    _topology: Topology = PrivateAttr()
    _own: Own = PrivateAttr()
    _codec: Codec = PrivateAttr()
    _random: Random = PrivateAttr()
    _group: Group = PrivateAttr()
    _round: int = PrivateAttr(0)
    _rated: int = PrivateAttr(1)
    """The step that `own.lr` is for."""
    _phase: Literal["idle", "computing", "waiting"] = PrivateAttr("idle")
    _gradient: Vector | None = PrivateAttr(None)
    _early: list[Message] = PrivateAttr(default_factory=list)

    def step_pushes(self, members: int) -> float:
        """Members step their own models, which they average."""
        return members

    # what the loop calls
    def begin(
        self, rank: int, group: Group, topology: Topology, own: Own, random: Random, codec: Codec | None = None
    ) -> None:
        """Before all else. Founders begin with the same model; who comes later then calls `join`. `codec`: as which values
        travel, as far as `may_send` allows it; None: as they are."""
        self._rank = rank
        self._topology = topology
        self._own = own
        self._random = random
        self._codec = codec or load_codec("none")
        self._set_group(group)

    def start(self) -> list[Message]:
        """The next step begins."""
        self._round += 1
        self._phase = "computing"
        return self._open()

    def step(self, gradient: Vector | None, share: float = 1.0) -> list[Message]:
        """The step's gradient, which must not change until nobody is waited for; None: there was none that can be used.
        `share`: its examples by those of a usual mini-batch, for policies that add gradients up."""
        self._gradient = gradient
        self._phase = "waiting"
        return self._push(gradient) + self._close_if_complete()

    def receive(self, message: Message) -> list[Message]:
        """A message has come. Of a member that I don't know yet, it waits for my view."""
        if message.view > self._group.view and message.sender not in self._group.members:
            self._early.append(message)
            return []
        return self._take(message) + self._close_if_complete()

    def room(self, kind: Kind, view: int, round: int, hop: int) -> Vector | None:
        """Where the values of such a message may be written as they arrive, before `receive`; wrong values do no harm there.
        None: they need a separate buffer."""
        return None

    def waits_for(self) -> frozenset[int]:
        """The members without whose messages this step can't end; empty: start the next."""
        return frozenset(self._missing()) if self._phase == "waiting" else frozenset()

    def regroup(self, group: Group) -> list[Message]:
        """Others left or joined; older views than the one known are passed over. Nobody is waited for who is gone."""
        if group.view <= self._group.view:
            return []
        before = self._group
        self._set_group(group)
        sent = self._regrouped(before) + self._close_if_complete()
        early = self._early
        self._early = []
        return sum(map(self.receive, early), sent)

    def gave_up(self, message: Message) -> None:
        """Nobody answered this ask for too long: whether it was received stays unknown."""

    @property
    def round(self) -> int:
        """The step that I am in, or that ended last, from 1."""
        return self._round

    def take_rate(self, lr: float) -> None:
        """The chief's word for the step that comes next."""
        self._own.lr = lr
        self._rated = self._over + 1

    @property
    def knows_rate(self) -> bool:
        """Whether a joiner can have the rate of its first step from me: only where all take the same steps it must, and then it
        can't before the chief has said it."""
        return not self.same_steps or self._rated > self._over

    @property
    def _over(self) -> int:
        """Steps that have ended."""
        return self._round - (self._phase != "idle")

    def welcome(self) -> Welcome:
        """What a joiner begins with; for a member that knows the view with the joiner in it."""
        own = self._own
        return Welcome(self._over, own.local.copy(), [slot.copy() for slot in own.slots], own.steps)

    def join(self, welcome: Welcome) -> list[Message]:
        """Takes over what a member gave, before the first step and before any message; the caller keeps messages until then."""
        own = self._own
        np.copyto(own.local, welcome.model)
        own.slots = welcome.slots
        own.steps = welcome.steps
        self._round = welcome.round
        self._rated = welcome.round + 1
        return []

    def may_send(self, codec: Codec) -> bool:
        """Whether what it sends may travel so. Models, of which nothing can be left out, may be rounded."""
        return codec.keeps_all

    # what a policy decides
    def _arrange(self) -> None:
        """Prepares for a new group: which members I send to and wait for."""

    def _open(self) -> list[Message]:
        """What I send before my gradient is ready."""
        return []

    @abstractmethod
    def _push(self, gradient: Vector | None) -> list[Message]:
        """What I do, and send, with my gradient."""

    @abstractmethod
    def _take(self, message: Message) -> list[Message]:
        """What I do with a message, and answer."""

    def _missing(self) -> Collection[int]:
        """The ranks whose messages I still wait for."""
        return ()

    def _close(self) -> list[Message]:
        """Ends the step, once all messages have come."""
        return []

    def _regrouped(self, before: Group) -> list[Message]:
        """What others must know now that the group is another one."""
        return []

    # what policies share
    def _message(self, kind: Kind, to: int, values: Vector) -> Message:
        return Message(kind, self._rank, to, self._group.view, self._round, values)

    def _others(self) -> list[int]:
        return [rank for rank in self._group.members if rank != self._rank]

    def _descend(self, gradient: Vector, scale: float = 1.0) -> None:
        """One step of the run's optimizer on my model: x <- x - lr * scale * gradient for plain SGD."""
        self._own.step(self._own.optimizer, gradient, scale)

    def _set_group(self, group: Group) -> None:
        if self._rank not in group.members:
            raise ConfigError(
                f"Rank {self._rank} is not in view {group.view}, whose members are {group.members}: it left, or "
                "was expelled. Join again before the next step."
            )
        self._group = group
        self._arrange()

    def _close_if_complete(self) -> list[Message]:
        if self._phase != "waiting" or self._missing():
            return []
        self._phase = "idle"
        return self._close()


def build_peer_policy(options: Options) -> PeerPolicy:
    """The peer policy that the config names, its options checked."""
    return registry.build(PACKAGE, PeerPolicy, options.name, options.options, "policy")


class PushSum(PeerPolicy):
    """[Kempe et al. 2003]: a message takes half of the sender's weight with it; the receiver's next model is the weighted mean
    of its model and the one that came, and has both weights. So sum(w) and sum(w x) over members and messages under way do not
    change. (SGP's biased x is w x here.) A joiner begins with a weight of 1, as the founders did. A member that leaves, or a
    message that is lost, takes its weight away: the mean is then that of what is left."""

    _weight: float = PrivateAttr(1.0)

    def _half(self, to: int) -> Message:
        """My model with half of my weight."""
        self._weight /= 2
        return replace(self._message("model", to, self._own.local.copy()), weight=self._weight)

    def _mix(self, message: Message) -> None:
        from paceline.core import kernels

        if message.weight:
            self._weight += message.weight
            kernels.mix(self._own.local, message.values, message.weight / self._weight)

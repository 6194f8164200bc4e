"""Members that train without servers, in one thread: what they send is under way until a schedule delivers it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from paceline.core.codecs.codec import load_codec
from paceline.core.optimizers.builtin.sgd import plain_sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.peers.peer_policy import Group, Message, PeerPolicy, build_peer_policy
from paceline.core.peers.topology import Topology, build_topology
from paceline.core.policies.policy import Own
from paceline.core.settings.config import Options

Gradient = Callable[[int, np.ndarray], np.ndarray | None]


def zero(rank: int, model: np.ndarray) -> np.ndarray:
    return np.zeros_like(model)


class Peers:
    """All members of a run; whose turn it is, and which message comes next, is drawn from `seed`."""

    def __init__(
        self,
        policy: str,
        models: dict[int, Sequence[float]],
        topology: str | Topology | None = None,
        gradient: Gradient = zero,
        seed: int = 0,
        lr: float = 0.5,
        optimizer: Optimizer | None = None,
        codec: str = "none",
        **options: object,
    ) -> None:
        """`models`: rank -> its first model."""
        self.options = Options(name=policy, **options)
        self.gradient = gradient
        self.random = Random(seed)
        self.lr = lr
        self.optimizer = optimizer or plain_sgd(lr)
        self.codec = load_codec(codec)
        build = build_peer_policy(self.options)
        named = topology if topology is not None else type(build).usual_topology
        self.topology = build_topology(Options(name=named)) if isinstance(named, str) else named
        self.group = Group(1, tuple(sorted(models)))
        self.members: dict[int, PeerPolicy] = {}
        self.owns: dict[int, Own] = {}
        self.rounds: dict[int, int] = {}
        self.computing: set[int] = set()
        self.wire: list[Message] = []
        self.sent: list[Message] = []
        self.kept: dict[int, np.ndarray] = {}
        self.told: list[tuple[int, Group]] = []
        for rank, model in models.items():
            self._seat(rank, model)

    def _seat(self, rank: int, model: Sequence[float], round: int = 0) -> PeerPolicy:
        own = self.owns[rank] = Own(np.array(model, np.float32), self.optimizer, self.lr)
        own.slots = self.optimizer.new_slots(len(own.local))
        policy = self.members[rank] = build_peer_policy(self.options)
        self.rounds[rank] = round
        policy.begin(rank, self.group, self.topology, own, Random(self.random.random()), self.codec)
        return policy

    def model(self, rank: int) -> np.ndarray:
        return self.owns[rank].local

    def models(self) -> np.ndarray:
        """Of all members by rank, in float64."""
        return np.array([self.model(rank) for rank in sorted(self.members)], np.float64)

    def able(self, rank: int, until: int) -> bool:
        """Whether the member can start a step up to `until`, or has its gradient to come."""
        return rank in self.computing or (self.rounds[rank] < until and not self.members[rank].waits_for())

    # one event each
    def send(self, messages: list[Message]) -> None:
        for message in messages:
            self.sent.append(replace(message, values=message.values.copy()))
            self.wire.append(message)
            self.kept[id(message)] = self.sent[-1].values

    def deliver(self, number: int = 0) -> Message:
        """The message at this place of those under way arrives; to one who is gone it is lost."""
        message = self.wire.pop(number)
        if message.to in self.members:
            assert np.array_equal(message.values, self.kept.pop(id(message))), "values changed before they were taken"
            self.send(self.members[message.to].receive(self._arrived(message)))
        return message

    def _arrived(self, message: Message) -> Message:
        """As the codec leaves it, in the room that the receiver has for it, at the second try."""
        message = replace(message, values=message.values.copy())
        self.codec.round(message.values)
        room = self.members[message.to].room(message.kind, message.view, message.round, message.hop)
        if room is None or len(room) != len(message.values):
            return message
        room[: len(room) // 2 + 1] = np.nan
        np.copyto(room, message.values)
        return replace(message, values=room)

    def go_on(self, rank: int) -> None:
        """The member starts its next step, or finds its gradient."""
        if rank in self.computing:
            self.computing.discard(rank)
            self.send(self.members[rank].step(self.gradient(rank, self.model(rank).copy())))
        else:
            self.computing.add(rank)
            self.rounds[rank] += 1
            self.send(self.members[rank].start())

    def leave(self, *ranks: int) -> None:
        """They are gone at once; the others hear it one by one, later."""
        for rank in ranks:
            del self.members[rank], self.owns[rank], self.rounds[rank]
            self.computing.discard(rank)
        self._publish(tuple(sorted(self.members)))

    def join(self, rank: int, through: int) -> np.ndarray:
        """A new member takes over what `through`, which knows the new view already, gives; returns that model."""
        self._publish(tuple(sorted({*self.members, rank})))
        self.tell(next(entry for entry in self.told if entry[0] == through and entry[1] is self.group))
        welcome = self.members[through].welcome()
        policy = self._seat(rank, np.zeros_like(welcome.model).tolist(), welcome.round)
        brought = welcome.model.copy()
        self.send(policy.join(welcome))
        return brought

    def _publish(self, members: tuple[int, ...]) -> None:
        self.group = Group(self.group.view + 1, members)
        self.told += [(rank, self.group) for rank in self.members]

    def tell(self, entry: tuple[int, Group]) -> int:
        self.told.remove(entry)
        rank, group = entry
        if rank in self.members and rank in group.members:
            self.send(self.members[rank].regroup(group))
        return rank

    def tell_all(self) -> None:
        while self.told:
            self.tell(self.told[0])

    # many events
    def run(self, until: int, events: int | None = None) -> None:
        """Draws events until all have ended step `until` and nothing is under way, or this number was drawn. AssertionError
        where nobody can do anything before that."""
        able = {rank for rank in self.members if self.able(rank, until)}
        while events is None or events > 0:
            ready = sorted(able)
            choices = len(ready) + len(self.wire) + len(self.told)
            if not choices:
                stuck = {rank: sorted(policy.waits_for()) for rank, policy in self.members.items()}
                assert not any(stuck.values()), f"wait for ever: {stuck}"
                return
            number = self.random.randrange(choices)
            if number < len(ready):
                touched = ready[number]
                self.go_on(touched)
            elif number < len(ready) + len(self.wire):
                touched = self.deliver(number - len(ready)).to
            else:
                touched = self.tell(self.told[number - len(ready) - len(self.wire)])
            able.discard(touched)
            if touched in self.members and self.able(touched, until):
                able.add(touched)
            events = None if events is None else events - 1

    def run_with_changes(self, events: list[int], random: Random) -> None:
        """After each count of events somebody leaves or joins, all drawn from `random`."""
        for number, some in enumerate(events):
            self.run(10_000, events=some)
            someone = random.choice(sorted(self.members))
            if len(self.members) > 1 and random.random() < 0.5:
                self.leave(someone)
            else:
                self.join(3 * number if random.random() < 0.5 else 100 + number, someone)

    def in_step(self, steps: int = 1) -> None:
        """All start, all have their gradients, all messages come in the order in which they were sent."""
        for _ in range(steps):
            for _ in range(2):
                for rank in sorted(self.members):
                    self.go_on(rank)
            while self.wire:
                self.deliver()

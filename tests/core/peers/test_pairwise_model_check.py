"""AD-PSGD, all orders in which things can happen to few workers, and thousands of random ones to more: no one waits
forever, and no exchange changes the sum of all models by more than the difference whose answer was lost."""

from copy import copy
from random import Random

import numpy as np
import pytest

from paceline.core.optimizers.builtin.sgd import plain_sgd
from paceline.core.peers.peer_policies.adpsgd import Adpsgd
from paceline.core.peers.peer_policy import Group, Message
from paceline.core.peers.topologies.complete import Complete
from paceline.core.peers.topologies.ring import Ring
from paceline.core.policies.policy import Own
from tests.support.nights import some
from tests.support.peer_network import Peers

ZERO = np.zeros(1, np.float32)


class Told(Random):
    """Chooses what the test says."""

    def choice(self, seq):
        return seq[self.number]


class World:
    """All there is at one moment: members, messages under way, views not heard of yet, and who may still leave."""

    def __init__(self, size, topology, leavers):
        self.group = Group(1, tuple(range(size)))
        self.policies = {}
        self.owns = {}
        self.left = dict.fromkeys(range(size), 2)
        self.wire = ()
        self.told = ()
        self.leavers = leavers
        for rank in range(size):
            self.owns[rank] = Own(np.array([4.0**rank], np.float32), plain_sgd(0.1), 0.1)
            self.policies[rank] = Adpsgd()
            self.policies[rank].begin(rank, self.group, topology, self.owns[rank], Told())
        self.sum = sum(4.0**rank for rank in range(size))

    def copied(self, *ranks):
        """A world like this one, in which these members may be changed."""
        other = copy(self)
        other.policies = dict(self.policies)
        other.owns = dict(self.owns)
        other.left = dict(self.left)
        for rank in ranks:
            own = other.owns[rank] = copy(self.owns[rank])
            own.local = own.local.copy()
            policy = other.policies[rank] = copy(self.policies[rank])
            policy._own = own
            policy._unanswered = dict(policy._unanswered)
            policy._answers = dict(policy._answers)
        return other

    def key(self, values=True):
        """Equal for worlds that go on alike; nothing but sums depends on values, and those are kept or not in each event."""
        members = tuple(self._member_key(rank, values) for rank in sorted(self.policies))
        wire = sorted((m.kind, m.sender, m.to, m.round, values and m.values[0]) for m in self.wire)
        told = sorted((rank, group.view, group.members) for rank, group in self.told)
        return members, tuple(wire), tuple(told), self.leavers, values and round(float(self.sum), 6)

    def _member_key(self, rank, values):
        policy = self.policies[rank]
        ask, answers = policy._ask, sorted(policy._answers.items())
        return (
            rank,
            policy._group.view,
            policy._round,
            policy._phase,
            ask and ask.to,
            frozenset(policy._unanswered),
            self.left[rank],
            values and self.owns[rank].local[0],
            tuple((to, answer.round, values and answer.values[0]) for to, answer in answers),
        )

    def unsettled(self):
        """What the sum of all models has too much: differences that a passive has added and the active not taken off."""
        return sum(m.values[0] for m in self.wire if m.kind == "answer")

    # what can happen
    def nexts(self):
        """What comes of each event; of a message's loss alone, where one is lost: no other event sees whether it was before or
        after it, and none can keep it from being lost."""
        lost = next((place for place, message in enumerate(self.wire) if message.to not in self.policies), None)
        if lost is not None:
            yield self.loses(lost)
            return
        for rank, policy in self.policies.items():
            if self.left[rank] and not policy.waits_for():
                for number in range(len(policy._partners)):
                    yield self.starts(rank, number)
        for place in range(len(self.wire)):
            yield self.arrives(place)
        for entry in self.told:
            yield self.hears(entry)
        for rank in self.leavers if len(self.policies) > 1 else ():
            yield self.leaves(rank)

    def starts(self, rank, number):
        """Its step, which is 0, commutes with all that others do, so it is no separate event."""
        other = self.copied(rank)
        other.policies[rank]._random = Told()
        other.policies[rank]._random.number = number
        other.left[rank] -= 1
        other.wire += tuple(other.policies[rank].start() + other.policies[rank].step(ZERO))
        return other

    def arrives(self, place):
        message, other = self._taken(place)
        other.wire += tuple(other.policies[message.to].receive(message))
        return other

    def loses(self, place):
        """It was for one who is gone; what a passive has added for it stays."""
        message, other = self._taken(place)
        other.sum += message.values[0] if message.kind == "answer" else 0
        return other

    def _taken(self, place) -> tuple[Message, "World"]:
        """A message off the wire, and the world without it."""
        message = self.wire[place]
        other = self.copied(*{message.to} & set(self.policies))
        other.wire = self.wire[:place] + self.wire[place + 1 :]
        return message, other

    def hears(self, entry):
        rank, group = entry
        other = self.copied(rank)
        other.told = tuple(known for known in self.told if known is not entry)
        other.wire += tuple(other.policies[rank].regroup(group))
        return other

    def leaves(self, rank):
        """With its model; what is on its way to it will be lost."""
        other = self.copied()
        other.sum -= self.owns[rank].local[0]
        for known in (other.policies, other.owns, other.left):
            del known[rank]
        other.group = Group(self.group.view + 1, tuple(sorted(other.policies)))
        other.told = tuple((to, other.group) for to in other.policies)
        other.leavers = ()
        return other


def explore(world, values):
    """How many worlds can come of this one, and those in which nothing can happen any more."""
    seen, waiting, ends = {world.key(values)}, [world], []
    while waiting:
        here = waiting.pop()
        total = sum(float(own.local[0]) for own in here.owns.values())
        assert abs(total - here.unsettled() - here.sum) < 1e-3
        nexts = list(here.nexts())
        if not nexts:
            ends.append(here)
        for other in nexts:
            key = other.key(values)
            if key not in seen:
                seen.add(key)
                waiting.append(other)
    return len(seen), ends


SMALL, LARGE = [(3, ()), (3, (0, 1, 2)), (4, ())], [(4, (0,)), (4, (1,))]
"""The large ones take 4 to 7 s each."""


@pytest.mark.parametrize(("size", "leavers"), some(SMALL + LARGE, SMALL), ids=str)
def test_in_every_order_of_events_all_end_their_exchanges_and_the_sum_is_kept(size, leavers):
    """Two exchanges for each active; one of `leavers` may leave at any moment, which the others hear one by one."""
    _, ends = explore(World(size, Ring(), leavers), values=not leavers or size == 3)

    assert ends
    for end in ends:
        assert not any(end.left[rank] for rank, policy in end.policies.items() if policy._partners)
        assert not any(policy.waits_for() for policy in end.policies.values())
        assert sum(float(own.local[0]) for own in end.owns.values()) == pytest.approx(end.sum)


@pytest.mark.parametrize("seed", some(range(0, 2000, 250), [0]))
def test_in_thousands_of_random_orders_all_end_their_exchanges_and_the_sum_is_kept(seed):
    for number in range(seed, seed + 250):
        random = Random(number)
        size, topology = random.randint(5, 9), random.choice((Ring(), Ring(shortcuts=True), Complete()))
        peers = Peers("adpsgd", {rank: [random.uniform(-1, 1)] for rank in range(size)}, topology, seed=number)
        before = peers.models().sum()

        peers.run(2)
        assert peers.models().sum() == pytest.approx(before, abs=1e-5)
        peers.run(4, events=random.randint(0, 30))
        peers.leave(random.randrange(size))
        peers.run(5)

"""Every row is in every slice once, also where workers and servers die at any moment."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from paceline.core.chief.leases import NOTHING, Lease, Leases, Pace, Wish, with_all_servers_alike

FREE, LEVEL = Pace(is_level=False, is_exact=False), Pace(is_level=True, is_exact=False)


class Slice:
    """What one server has: rows by how often, each worker's clock, and a snapshot of both."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[int, int]] = Counter()
        self.clocks: Counter[str] = Counter()
        self.snapshot = self.rows.copy(), self.clocks.copy()

    def push(self, server: int, worker: str, clock: int, lease: Lease) -> None:
        if clock == self.clocks[worker] + 1:  # others are repeats
            self.clocks[worker] = clock
            if lease.stream != NOTHING and server not in lease.has:
                self.rows.update((lease.stream, row) for row in lease.rows(clock))


class World:
    """Workers, servers and a chief, with all that can go wrong between two calls."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.streams = self.draw.randint(1, 5)
        self.slices = [Slice() for _ in range(self.draw.randint(1, 3))]
        self.leases = Leases(self.streams)
        self.leases.end = self.draw.randint(1, 40)
        self.pace = self.draw.choice((FREE, LEVEL))
        self.width = self.draw.choice((1, 1, 3, 16))
        self.members: dict[str, int] = {}
        self.names = 0

    def marks(self, worker: str) -> list[int]:
        return [each.clocks[worker] for each in self.slices]

    def join(self) -> None:
        free = set(range(self.streams)) - set(self.members.values())
        if free:
            gone = [worker for worker in self.leases.holders if worker not in self.members]
            is_back = gone and self.draw.random() < 0.5
            self.names += not is_back
            self.members[self.draw.choice(gone) if is_back else f"w{self.names}"] = self.draw.choice(sorted(free))

    def step(self, worker: str, reach: Sequence[int]) -> None:
        """One clock, which gets to these servers."""
        lease, clock = self.lease(worker), min(self.marks(worker)) + 1
        assert lease.after < clock <= lease.end
        for server in reach:
            self.slices[server].push(server, worker, clock, lease)

    def lease(self, worker: str) -> Lease:
        wish = Wish(worker, min(self.marks(worker)), self.width, self.draw.randint(1, 40), place=self.members[worker])
        marks = {member: self.slices[0].clocks[member] for member in self.members}
        return self.leases.grant(wish, set(self.members.values()), marks, self.pace)

    def leave(self, worker: str) -> None:
        del self.members[worker]
        self.leases.release(worker, self.marks(worker))

    def go_back(self, server: int) -> None:
        """A server has lost what came after its snapshot; workers that have left can't send it again."""
        rows, clocks = self.slices[server].snapshot
        self.slices[server].rows, self.slices[server].clocks = rows.copy(), clocks.copy()
        for worker in self.leases.holders:
            if worker not in self.members:
                self.leases.release(worker, self.marks(worker))

    def restart(self) -> None:
        """The chief has come back with what it has written down."""
        state = self.leases.state()
        self.leases = Leases(self.streams)
        self.leases.restore(state)

    def event(self) -> None:
        everywhere = range(len(self.slices))
        kind = self.draw.random()
        if kind < 0.08 or not self.members:
            self.join()
        elif kind < 0.12:
            self.leave(self.draw.choice(sorted(self.members)))
        elif kind < 0.16:
            worker = self.draw.choice(sorted(self.members))
            self.step(worker, self.draw.sample(everywhere, self.draw.randint(0, len(self.slices))))
            if self.draw.random() < 0.5:
                self.leave(worker)
        elif kind < 0.18:
            one = self.draw.choice(self.slices)
            one.snapshot = one.rows.copy(), one.clocks.copy()
        elif kind < 0.19:
            self.go_back(self.draw.choice(everywhere))
        elif kind < 0.2:
            self.restart()
        elif kind < 0.21 and all(len({*self.marks(worker)}) == 1 for worker in self.members):  # as a policy changes
            self.width = self.draw.choice((1, 2, 16))
            for worker in sorted(self.members):
                self.lease(worker)
        else:
            self.step(self.draw.choice(sorted(self.members)), everywhere)

    def is_done(self) -> bool:
        wanted = self.streams * self.leases.end
        return all(sum(1 for _, row in each.rows if row < self.leases.end) == wanted for each in self.slices)


def leases_of_three_streams() -> Leases:
    found = Leases(3)
    found.end = 8
    return found


def test_a_worker_that_leaves_keeps_what_it_has_computed_of_its_clock_and_others_get_the_rest() -> None:
    leases = leases_of_three_streams()
    leases.grant(Wish("worker-2", 0, 4, 8, place=2), {0, 1, 2}, {}, LEVEL)

    last = leases.grant(Wish("worker-2", 1, 4, 0, last=1, place=2), {0, 1, 2}, {}, LEVEL)
    leases.release("worker-2", [2, 2])

    assert last == Lease(1, 2, 4, 5, 4)
    assert leases.untrained == 8 + 8 + 3
    assert leases.grant(Wish("worker-1", 0, 1, 8, place=2), {2}, {}, FREE) == Lease(0, 2, 5, 8)


def test_in_rounds_each_member_comes_to_the_end_of_its_own_stream() -> None:
    leases = leases_of_three_streams()
    for place, after in ((0, 0), (0, 2), (1, 0), (0, 4), (1, 2), (2, 0), (0, 6)):
        lease = leases.grant(Wish(f"worker-{place}", after, 1, 2, place=place), {0, 1, 2}, {}, LEVEL)
        assert (lease.stream, lease.rows(after + 1).start) == (place, after)


def test_nothing_beyond_the_epochs_is_leased_while_another_worker_is_not_done() -> None:
    leases, exact = Leases(2), Pace(is_level=False, is_exact=True)
    leases.end = 1
    first, second = Wish("worker-0", 0, 1, 1), Wish("worker-1", 0, 1, 1, place=1)
    leases.grant(second, {0, 1}, {}, FREE)
    leases.grant(first, {0, 1}, {}, FREE)

    idle = leases.grant(first._replace(after=1), {0, 1}, {"worker-0": 1, "worker-1": 0}, FREE)
    over = leases.grant(first._replace(after=2), {0, 1}, {"worker-0": 2, "worker-1": 1}, exact)
    more = leases.grant(first._replace(after=3), {0, 1}, {"worker-0": 3, "worker-1": 1}, FREE)

    assert (idle.stream, over.stream) == (NOTHING, NOTHING)
    assert more == Lease(3, 0, 1, 2)


def test_a_changed_policy_has_the_rest_of_a_lease_in_its_own_clocks() -> None:
    leases = leases_of_three_streams()
    leases.grant(Wish("worker-0", 0, 4, 8), {0, 1, 2}, {}, LEVEL)

    lease = leases.grant(Wish("worker-0", 1, 1, 8), {0, 1, 2}, {}, LEVEL)

    assert lease == Lease(1, 0, 4, 8)
    assert leases.grant(Wish("worker-0", 0, 1, 8), {0, 1, 2}, {}, LEVEL) == Lease(0, 0, 0, 4, 4), "as it was computed"


def test_other_servers_all_get_what_some_of_the_old_ones_had() -> None:
    leases = leases_of_three_streams()
    leases.grant(Wish("worker-2", 0, 1, 4, place=2), {0, 1, 2}, {}, FREE)
    leases.release("worker-2", [3, 2])
    state = leases.state()

    leases.restore(with_all_servers_alike(state))

    assert leases.grant(Wish("worker-0", 0, 1, 1, place=2), {2}, {}, FREE) == Lease(0, 2, 2, 3)
    assert leases.lacking(["worker-0"]) == 0


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_each_row_of_the_epochs_is_in_every_slice_once_in_any_order_of_events(first: int) -> None:
    for seed in range(first, first + 100):
        world = World(seed)
        for _ in range(200):
            world.event()
        for _ in range(5000):
            if world.is_done():
                break
            if not world.members:
                world.join()
            world.step(world.draw.choice(sorted(world.members)), range(len(world.slices)))
        assert world.is_done(), seed
        for each in world.slices:
            assert {count for (_, row), count in each.rows.items() if row < world.leases.end} <= {1}, seed


def test_rows_that_some_slices_have_are_cut_for_a_changed_policy_too() -> None:
    leases = Leases(1)
    leases.end = 12
    leases.grant(Wish("a", 0, 3, 12), {0}, {}, FREE)
    leases.release("a", [2, 0])
    held = leases.grant(Wish("b", 0, 3, 12), {0}, {}, FREE)

    lease = leases.grant(Wish("b", 1, 1, 12), {0}, {}, FREE)

    assert (held.width, held.has) == (3, (0,))
    assert (lease.has, [list(lease.rows(clock)) for clock in (2, 3, 4)]) == ((0,), [[3], [4], [5]])


def test_a_run_from_before_there_were_leases_goes_on_where_it_is() -> None:
    leases = leases_of_three_streams()
    assert leases.grant(Wish("worker-0", 3, 2, 4), {0}, {}, FREE) == Lease(3, 0, 6, 8, 2)
    assert leases.grant(Wish("worker-1", 3, 2, 4, place=1), {0, 1}, {}, FREE) == Lease(3, 1, 6, 8, 2)
    assert leases.untrained == 2

"""Workers that come and go without end, in virtual time: rounds close anyway, the same ones on all servers, and each push is
in the model once."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import pytest

from paceline.core.optimizers.optimizer import Optimizer
from tests.support.virtual import Cluster, make_config, one_hot
from tests.support.virtual_chaos import asked, stop
from tests.support.virtual_server import Server
from tests.support.virtual_time import Conditions, Task

NAMES = [f"worker-{number}" for number in range(8)]
CLOCKS = 512
"""More than any worker comes to."""
UNTIL = 20.0
"""When the last one goes (seconds)."""
LEASE = 2.0


@dataclass(frozen=True)
class Churn:
    """How workers come and go."""

    life: float = 1.0
    """Mean of the exponential distribution of a process's life (seconds)."""
    away: float = 0.3
    silent: float = 0.0
    """Share of lives that end without a word."""
    restarts: int = 0
    """Of servers, at random moments."""


def churning(seed: int, policy: str, churn: Churn, optimizer: Optimizer, servers: int, view_delay: float) -> Cluster:
    """A run whose workers come and go until UNTIL, but for the first one, which stays; then it is stopped."""
    rng = random.Random(f"{seed} {policy} {churn} {servers}")
    conditions = Conditions(delay=(0.001, 0.02), view_delay=view_delay)
    config = make_config(policy, workers=len(NAMES), servers=servers, lease=LEASE, heartbeat=0.4, epochs=1000)
    length = servers * len(NAMES) * CLOCKS
    cluster = Cluster(seed, config, one_hot(NAMES, CLOCKS, servers), optimizer, length, 1, conditions)

    def goes(name: str) -> None:
        if cluster.now > UNTIL:
            return
        if rng.random() < churn.silent:
            cluster.crash_worker(name)
        else:
            cluster.tell_to_leave(name)
        cluster.after(churn.away, partial(comes, name))

    def comes(name: str) -> None:
        cluster.start_worker(name)
        cluster.after(rng.expovariate(1 / churn.life), partial(goes, name))

    def restart() -> None:
        server = rng.choice(cluster.servers)
        if server.is_up:
            server.crash(rng.uniform(0.1, 1.0))

    for name in NAMES:
        cluster.start_worker(name)
    for name in NAMES[1:]:
        cluster.after(2.0 + rng.expovariate(1 / churn.life), partial(goes, name))
    for _ in range(churn.restarts):
        cluster.after(rng.uniform(2.0, UNTIL), restart)
    cluster.after(UNTIL + 10.0, lambda: Task(cluster, asked(cluster, stop)))
    return cluster


def book_of(server: Server) -> list[set[tuple[str, int]]]:
    """What was in each fold: workers and clocks."""
    return [{(NAMES[place // CLOCKS], int(place) % CLOCKS) for place in fold} for fold in server.slice.folds]


def torn(cluster: Cluster) -> set[tuple[str, int]]:
    """Clocks that were under way when their process ended: a successor sends them again where a server does not have them."""
    ended = [process for process in cluster.processes if not process.has_finished]
    return {(process.name, answered + 1) for process in ended for answered in process.answered}


def check_rounds(cluster: Cluster) -> None:
    """Nothing is in a server's folds twice; pushes that two servers have are in the same fold there, in the same order."""
    books, left_out = [book_of(server) for server in cluster.servers], torn(cluster)
    for book in books:
        pushes = [push for fold in book for push in fold]
        assert len(pushes) == len(set(pushes)), "a push was folded twice"
    for one, other in combinations(books, 2):
        both = set().union(*one) & set().union(*other) - left_out
        folds = [[fold & both for fold in book if fold & both] for book in (one, other)]
        assert folds[0] == folds[1], "two servers closed different rounds"


def check_answered(cluster: Cluster) -> None:
    """What a server has answered is in its folds."""
    for server in cluster.servers:
        folded = set().union(*book_of(server))
        for name in NAMES:
            clocks = cluster.acknowledged.get((server.index, name), {})
            assert {(name, clock) for clock in clocks} <= folded, f"{name} on server {server.index}"


def pauses(cluster: Cluster) -> Iterator[float]:
    """The times between two rounds of the chief's slice, while workers come and go (seconds)."""
    times = [time for time, _ in cluster.servers[0].rounds if 2.0 <= time <= UNTIL]
    return (later - earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize("policy", ["bsp", "local_sgd:4"])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_rounds_close_however_often_workers_come_and_go(policy, servers, ledger):
    steps, view_delay = (1 if policy == "bsp" else 4), 0.7 if servers > 1 else 0.0
    longest = 2 * (0.1 * steps + 2 * view_delay) + 0.4  # a view may set out just when the earlier one has
    for seed in range(3):
        cluster = churning(seed, policy, Churn(), ledger, servers, view_delay)

        cluster.until_finished(400.0)

        assert len(cluster.processes) > 60
        assert max(pauses(cluster)) < longest
        check_rounds(cluster)
        check_answered(cluster)
        assert len({server.slice.version for server in cluster.servers}) == 1


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_a_death_without_a_word_delays_rounds_by_a_lease_and_no_more(servers, ledger):
    for seed in range(3):
        cluster = churning(seed, "bsp", Churn(life=4.0, silent=0.3), ledger, servers, 0.2)

        cluster.until_finished(400.0)

        assert max(pauses(cluster)) < 2 * LEASE + 1.5
        check_rounds(cluster)
        check_answered(cluster)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_that_come_back_close_the_rounds_that_the_others_have_closed(servers, ledger):
    """What a server has lost is lost where its worker left meanwhile; one that stays sends it again."""
    for seed in range(3):
        cluster = churning(seed, "bsp", Churn(life=4.0, silent=0.2, restarts=2), ledger, servers, 0.2)

        cluster.until_finished(400.0)

        books = [book_of(server) for server in cluster.servers]
        of_first = [[sorted(clock for name, clock in fold if name == NAMES[0]) for fold in book] for book in books]
        assert all(of_first[0] == found for found in of_first)
        assert of_first[0] == [[clock] for clock in range(1, len(of_first[0]) + 1)]
        assert len({server.slice.version for server in cluster.servers}) == 1
        for book in books:
            assert sum(map(len, book)) == len(set().union(*book)), "a push was folded twice"


@pytest.mark.parametrize("servers", [1, 2])
def test_a_worker_that_always_dies_in_its_first_step_stops_nobody(servers, ledger):
    cluster = churning(0, "bsp", Churn(life=1e9), ledger, servers, 0.0)
    cluster.conditions.slow[NAMES[1]] = 1e6

    def fails() -> None:
        cluster.crash_worker(NAMES[1], 0.2)
        cluster.after(1.0, fails)

    cluster.after(2.0, fails)

    cluster.until_finished(400.0)

    assert max(pauses(cluster)) < LEASE + 2.0

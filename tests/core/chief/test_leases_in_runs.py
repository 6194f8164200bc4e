"""Whole runs in virtual time whose workers die, leave and come back while servers go back: each mini-batch of the epochs is in
every slice once."""

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest

from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.values import Vector
from tests.support.nights import seeds
from tests.support.virtual import Cluster, make_config
from tests.support.virtual_server import Row, Server
from tests.support.virtual_time import Conditions

POLICIES = ("asp", "ssp:1", "bsp", "local_sgd:3", "kbuffered:3")
EPOCHS, LENGTH = 2, 53


def troubled(seed: int, policy: str) -> Cluster:
    """A run of one to four seats, of which some are left for good, and taken by new workers; servers die, too. A chief that is
    back waits for one of its members, so that the first worker comes back where servers die."""
    draw = random.Random(f"{seed} {policy}")
    names = [f"worker-{number}" for number in range(draw.randint(1, 4))]
    config = make_config(
        policy,
        workers=len(names),
        servers=draw.randint(1, 3),
        epochs=EPOCHS,
        overlap=draw.random() < 0.3,
        heartbeat=1.0,
        lease=draw.choice([5.0, 15.0]),
        start_timeout=10.0,
        data={"leases": True},
    )
    conditions = Conditions.drawn(draw, names, [0.0, 0.5])
    cluster = Cluster(seed, config, _no_change, Sgd(lr=0.1), LENGTH, draw.randint(1, 12), conditions)
    for name in names:
        cluster.start_worker(name)

    crashes = draw.choice([0, 0, 1, 2])
    for number in range(draw.randint(0, 4)):
        when, after = draw.uniform(0.1, 4.0), draw.uniform(0.0, 8.0)
        name, newcomer = draw.choice(names), f"newcomer-{len(names) + number}"
        kind = draw.choice(["replace"] if crashes and name == names[0] else ["die", "leave", "replace"])
        cluster.after(when, partial(_let_go, cluster, name, kind, after, newcomer))
    for _ in range(crashes):
        cluster.after(draw.uniform(0.1, 4.0), partial(_crash, draw.choice(cluster.servers), draw.uniform(0.1, 2.0)))
    return cluster


def _no_change(worker: str, clock: int, weights: Vector) -> Vector:
    return np.zeros_like(weights)


def _let_go(cluster: Cluster, name: str, kind: str, after: float, newcomer: str) -> None:
    """A worker dies or leaves for good, and another one comes; or its next process does."""
    if kind == "leave" and cluster.workers[name].incarnation:
        cluster.tell_to_leave(name)
    else:
        cluster.crash_worker(name)
    cluster.after(after, partial(cluster.start_worker, name if kind == "replace" else newcomer))


def _crash(server: Server, seconds: float) -> None:
    if server.is_up:
        server.crash(seconds)


def check(cluster: Cluster) -> None:
    """Each row of the epochs has come to each slice once; at most once where a process has gone after the last clocks were
    named: nobody can take over what it has left undone."""
    end = cluster.config.epochs * cluster.steps
    wanted = Counter[Row]((stream, row) for stream in range(cluster.config.workers) for row in range(end))
    for server in cluster.servers:
        counts = Counter({row: count for row, count in server.row_counts().items() if row[1] < end})
        lacking, excess = sorted(wanted - counts), sorted(counts - wanted)
        assert not excess, f"server {server.index} has {excess} too often"
        assert not (lacking and cluster.is_undisturbed), f"server {server.index} lacks {lacking}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("numbers", seeds(8, 100))
def test_each_mini_batch_is_in_every_slice_once_whoever_leaves_and_comes(policy: str, numbers: range) -> None:
    for seed in numbers:
        cluster = troubled(seed, policy)
        try:
            cluster.until_finished(600.0)
            check(cluster)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {policy}: {error}") from error

"""A finished run that is given more epochs (docs/failures/resume.md#more-epochs), in virtual time: it goes on where it ended,
and nothing is lost or folded twice."""

import random

import numpy as np
import pytest

from paceline.core.chief.phases import RunPhase
from tests.runs.test_virtual_cluster import OTHERS, POLICIES
from tests.support.nights import spread
from tests.support.virtual import Cluster, make_config
from tests.support.virtual_chaos import DROPPING, NAMES, PLAIN, chaotic, check_ledger, happen
from tests.support.virtual_lock_step import SGD, LeastSquares, single_process, trained
from tests.support.virtual_time import Conditions

TROUBLES: tuple[tuple[str, ...], ...] = ((), ("crash",), ("replace", "join"), ("restart",), ("chief restart", "leave"))


def extended(seed: int, policy: str, trouble: tuple[str, ...], optimizer) -> Cluster:
    """A run of one epoch, then of three in all, with trouble in the second part; maybe with fewer workers than before."""
    rng = random.Random(f"{seed} {policy} {trouble}")
    cluster = chaotic(seed, policy, (), optimizer, rounds=rng.choice([4, 8]), start_timeout=20)
    cluster.until_finished(600.0)
    folded = [server.slice.clocks.trained for server in cluster.servers]
    workers = NAMES[: rng.choice([3, 4, 4, 5])]
    cluster.begin_again(3, workers)
    assert [server.slice.clocks.trained for server in cluster.servers] == folded, "the model is not that of the end"
    for what in trouble:
        happen(cluster, what, rng.uniform(0.5, 4.0), rng)
    cluster.until_finished(cluster.now + 900.0)
    return cluster


@pytest.mark.parametrize(("policy", "trouble"), spread(POLICIES + OTHERS, TROUBLES, 5))
def test_a_finished_run_trains_the_epochs_that_it_was_given_more(policy, trouble, ledger):
    cluster = extended(TROUBLES.index(trouble), policy, trouble, ledger)

    name = policy.partition(":")[0].partition(",")[0].partition(" ")[0]
    is_plain = name in PLAIN and "damped" not in policy
    is_lossless = not any("restart" in what for what in trouble)
    check_ledger(cluster, is_lossless=is_lossless, may_drop=name in DROPPING, is_plain=is_plain)
    assert cluster.run.budget.examples >= 3 * cluster.examples, "it ended too early"


@pytest.mark.parametrize("unsaved", [False, True], ids=["all saved", "a server died before its last snapshot"])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_lock_step_that_goes_on_gives_the_bits_of_one_that_never_ended(servers, unsaved):
    names = [f"worker-{number}" for number in range(3)]
    task = LeastSquares(7, 53)
    config = make_config("bsp", workers=3, servers=servers, batch_size=4, on_lost_worker="wait")
    cluster = Cluster(servers, config, task.gradient, SGD, 53, 10, Conditions(slow={"worker-1": 2.0}))
    for name in names:
        cluster.start_worker(name)
    cluster.until_finished(100.0)
    cluster.begin_again(2, names, cluster.servers[-1] if unsaved else None)

    cluster.until_finished(300.0)

    versions, weights = trained(cluster)
    (last,) = versions
    assert last >= 20
    assert weights.tobytes() == single_process(task, names, last, 4, SGD).tobytes()


def test_the_chief_may_die_while_the_run_waits_for_its_workers_again(ledger):
    cluster = chaotic(5, "ssp:1", (), ledger, rounds=6)
    cluster.until_finished(600.0)
    cluster.begin_again(2, ())
    assert cluster.run.phase is RunPhase.WAITING
    cluster.servers[0].crash(0.5)
    for name in NAMES[:4]:
        cluster.start_worker(name)

    cluster.until_finished(cluster.now + 600.0)

    check_ledger(cluster, is_lossless=True)
    assert cluster.run.budget.examples >= 2 * cluster.examples
    assert np.all(np.array([server.slice.clocks.trained for server in cluster.servers]) >= 2 * cluster.examples)

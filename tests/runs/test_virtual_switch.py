"""Changes of policy during a run (docs/understand/rounds.md#changes-of-policy), in virtual time: nothing stalls, nothing
acknowledged is lost or folded twice, all slices begin at the same version with all members level, and every worker ends up
with the new policy."""

import random
from itertools import permutations

import numpy as np
import pytest

from paceline.core.chief.run import Run
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Options
from tests.runs.test_virtual_cluster import OTHERS, POLICIES
from tests.support.nights import seeds, spread
from tests.support.virtual import Cluster, make_config
from tests.support.virtual_chaos import DROPPING, PLAIN, asked, chaotic, check_ledger, happen
from tests.support.virtual_lock_step import LeastSquares, accumulated, trained
from tests.support.virtual_time import Conditions, Task

COMPATIBLE = tuple(policy for policy in POLICIES + OTHERS if "diloco" not in policy)
"""Policies that can follow each other where the run's optimizer has no state; the outer one of diloco has."""
TROUBLES: tuple[tuple[str, ...], ...] = (
    (),
    ("crash",),
    ("leave",),
    ("replace",),
    ("silence",),
    ("join",),
    ("all leave",),
    ("stop",),
    ("restart",),
    ("chief restart",),
    ("old restart",),
    ("join", "leave", "replace"),
    ("chief restart", "replace", "leave"),
    ("old restart", "restart", "replace", "join"),
    ("chief restart", "old restart", "crash", "stop"),
)
MAIN = (("bsp", "ssp:1"), ("asp", "bsp"), ("kbuffered:3", "bsp"), ("easgd:2", "asp"), ("backup", "local_sgd:2"))


def options(policy: str) -> Options:
    return make_config(policy).policy


def switched(cluster: Cluster, policy: str, when: float) -> None:
    """Somebody wants another policy at this time, and asks until the chief takes it."""

    def switch(run: Run, cluster: Cluster) -> None:
        run.switch(options(policy), lambda: cluster.servers[0].slice.clocks)

    cluster.after(when, lambda: Task(cluster, asked(cluster, switch)))


def run_schedule(seed: int, policies: tuple[str, ...], trouble: tuple[str, ...], optimizer: Optimizer) -> None:
    """One run that goes from policy to policy; AssertionError that names it where a promise breaks."""
    rng = random.Random(f"{seed} {policies} {trouble}")
    rounds = rng.choice([4, 8, 16, 16])
    cluster = chaotic(seed, policies[0], (), optimizer, rounds=rounds, overlap=False)
    when = 0.0
    for policy in policies[1:]:
        when += rng.uniform(0.1, 1.0)
        switched(cluster, policy, when)
    for what in trouble:
        happen(cluster, what, max(0.2, when + rng.uniform(-0.5, 1.0)), rng)
    try:
        cluster.until_finished(600.0)
        check_promises(cluster, policies, has_restarts=any("restart" in what for what in trouble))
    except Exception as error:
        raise AssertionError(f"seed {seed}, {' -> '.join(policies)}, {'+'.join(trouble)}: {error}") from error


def check_promises(cluster: Cluster, policies: tuple[str, ...], *, has_restarts: bool) -> None:
    """What a change of policy must keep, no matter what happens meanwhile."""
    names = {from_shorthand(policy.partition(",")[0])["name"] for policy in policies}
    is_plain = names <= set(PLAIN) and not any("damped" in policy for policy in policies)
    check_ledger(cluster, is_lossless=not has_restarts, may_drop=bool(names & set(DROPPING)), is_plain=is_plain)
    if not has_restarts:  # a slice that comes back learns of clocks, and so of versions, beyond those of the change
        begun = [entry for server in cluster.servers for entry in server.slice.begun]
        assert all(is_level for *_, is_level in begun), f"members were not level: {begun}"
        assert len({entry[:2] for entry in begun}) == len({entry[0] for entry in begun}), f"other versions: {begun}"
    view = cluster.run.membership.view
    assert view.made == view.switch, "a change of policy never ended"
    number = view.made.number if view.made is not None else 0
    for server in cluster.servers:
        assert server.switch_number == number, f"server {server.index} did not change its policy"
    for worker in cluster.processes:
        assert not worker.has_finished or worker.in_force.number == number, f"{worker.name} kept an old policy"


@pytest.mark.parametrize("first", COMPATIBLE)
@pytest.mark.parametrize("numbers", seeds(1, 3))
def test_every_policy_follows_every_other_whatever_happens(first, numbers, ledger):
    """By day each is followed by a ninth of the others, each by another ninth."""
    for second in COMPATIBLE if numbers.start else COMPATIBLE[COMPATIBLE.index(first) % 9 :: 9]:
        for seed in numbers:
            trouble = random.Random(f"{seed} {first} {second}").choice(TROUBLES)
            run_schedule(seed, (first, second), trouble, ledger)


@pytest.mark.parametrize(("pair", "trouble"), spread(MAIN, TROUBLES, 2))
@pytest.mark.parametrize("numbers", seeds(1, 4))
def test_every_trouble_meets_a_change_of_policy(pair, trouble, numbers, ledger):
    for seed in numbers:
        run_schedule(seed, pair, trouble, ledger)


@pytest.mark.parametrize("first", ["ssp:1", "asp", "kbuffered:3", "backup"])
@pytest.mark.parametrize("trouble", ["none", "bad network", "replaced workers"])
def test_bsp_after_a_change_gives_the_bits_of_a_single_process_from_there_on(first, trouble):
    names = [f"worker-{number}" for number in range(4)]
    task, sgd = LeastSquares(7, 53), Sgd(lr=0.01, momentum=0.9, weight_decay=1e-4)
    conditions = Conditions(slow={"worker-1": 4.0})
    if trouble == "bad network":
        conditions = Conditions(delay=(0.001, 0.3), drop=0.05, double=0.2, stragglers=0.1, view_delay=1.0)
    config = make_config(first, workers=4, servers=3, batch_size=4, on_lost_worker="wait")
    cluster = Cluster(3, config, task.gradient, sgd, task.length, 30, conditions)
    for name in names:
        cluster.start_worker(name)
    switched(cluster, "bsp", 0.7)
    for number, name in enumerate(names if trouble == "replaced workers" else ()):
        cluster.after(0.75 + 0.2 * number, lambda name=name: cluster.crash_worker(name, 0.5))

    cluster.until_finished(400.0)

    begun = [server.slice.first for server in cluster.servers]
    clocks = [{name: state.table["clocks"][name]["clock"] for name in names} for state in begun]
    weights, momentum = np.empty(task.length, np.float32), np.empty(task.length, np.float32)
    for place, state in zip(cluster.places, begun, strict=True):
        weights[place], momentum[place] = state.weights, state.slots[0]
    versions, found = trained(cluster)
    (last,) = versions
    rounds = last - begun[0].table["version"]
    assert clocks[0] == clocks[1] == clocks[2]
    assert rounds >= 10
    accumulated(task, weights, [momentum], clocks[0], rounds, 4, sgd)
    assert found.tobytes() == weights.tobytes()


@pytest.mark.parametrize("policies", list(permutations(("bsp", "ssp:1", "kbuffered:3"))), ids=" -> ".join)
@pytest.mark.parametrize(
    "trouble", [(), ("old restart",), ("chief restart",), ("replace", "join"), ("stop",)], ids="+".join
)
@pytest.mark.parametrize("numbers", seeds(1, 4))
def test_a_change_of_policy_follows_another(policies, trouble, numbers, ledger):
    for seed in numbers:
        run_schedule(seed, policies, trouble, ledger)

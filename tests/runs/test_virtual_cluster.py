"""Whole runs in virtual time, hundreds of seeded schedules: nothing stalls, nothing is folded twice, no bound breaks,
rounds stay whole, and lock-step training gives the bits of a single process."""

from itertools import pairwise

import pytest

from paceline.core import registry
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.builtin.dssp import Dssp
from paceline.core.policies.policy import PACKAGE, build_policy
from paceline.core.settings.config import Config
from tests.support.nights import seeds, some, spread
from tests.support.virtual import Cluster, make_config, one_hot
from tests.support.virtual_chaos import CLOCKS, DROPPING, NAMES, PLAIN, chaotic, check_ledger, ledger_of
from tests.support.virtual_lock_step import LeastSquares, check_bits, single_process, trained
from tests.support.virtual_time import Conditions

POLICIES = ("bsp", "ssp:1", "asp", "shat")
VARIANTS = (
    "backup",
    "backup:2",
    "dana",
    "delay_threshold:3",
    "diloco:2",
    "downpour,push_every=2,pull_every=2",
    "dssp:1,upper=3",
    "dssp:1,upper=3,bounded=false",
    "easgd:2",
    "ensemble",
    "everyone",
    "kbuffered",
    "kbuffered:3,damped=true",
    "local_sgd:2",
    "local_sgd:3,dynamic=true",
    "rennala",
    "shat_root",
    "staleness_aware",
    "staleness_aware:outliers",
)
OTHERS = VARIANTS + tuple(
    name
    for name in registry.names(PACKAGE)
    if name not in {text.partition(":")[0].partition(",")[0] for text in POLICIES + VARIANTS}
)
"""A policy without its own row runs with its defaults."""
HAPPENINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("join",),
    ("join", "leave"),
    ("crash",),
    ("replace",),
    ("silence",),
    ("join", "leave", "crash", "replace"),
    ("restart",),
    ("restart", "replace"),
    ("restart", "join", "replace", "silence", "leave"),
    ("restart", "join", "replace", "stop"),
)
LEAVING = {"crash", "replace", "silence", "leave"}
"""Kinds of trouble in which a worker may be gone for good, with the pushes that it retains for a server that is away."""
LOCK_STEP_SEEDS = (*range(30), 762714)
"""In the last one a server died again while two new workers began."""


@pytest.mark.parametrize(("policy", "happenings"), spread(POLICIES + OTHERS, HAPPENINGS, 6))
@pytest.mark.parametrize("numbers", seeds(1, 8))
def test_every_schedule_ends_and_keeps_every_promise(policy, happenings, numbers, ledger):
    for seed in numbers:
        run_schedule(seed, policy, happenings, ledger)


def run_schedule(seed: int, policy: str, happenings: tuple[str, ...], optimizer: Optimizer) -> None:
    """One schedule; AssertionError that names it where a promise breaks."""
    cluster = chaotic(seed, policy, happenings, optimizer)
    try:
        cluster.until_finished(400.0)
        check_promises(cluster, is_lossless="restart" not in happenings or LEAVING.isdisjoint(happenings))
    except Exception as error:
        raise AssertionError(f"seed {seed}, {policy}, {'+'.join(happenings)}: {error}") from error


def check_promises(cluster: Cluster, *, is_lossless: bool) -> None:
    """Nothing lost, nothing twice; bounds hold; rounds are the same on all servers."""
    name, policy = cluster.config.policy.name, build_policy(cluster.config.policy)
    is_plain = name in PLAIN and not getattr(policy, "damped", False)
    check_ledger(cluster, is_lossless=is_lossless, may_drop=name in DROPPING, is_plain=is_plain)
    bound = policy.upper if isinstance(policy, Dssp) and policy.bounded else getattr(policy, "bound", None)
    if bound is not None:
        assert max(server.worst_lead for server in cluster.servers) <= bound, "a reply left above the bound"
    if policy.rounds and is_lossless:
        versions = {server.slice.version for server in cluster.servers}
        assert len(versions) == 1, f"the servers closed different rounds: {versions}"


# BSP is single-process training
@pytest.mark.parametrize("workers", [1, 3, 4, 11])
@pytest.mark.parametrize("trouble", ["none", "bad network", "slow workers", "replaced workers"])
def test_bsp_gives_the_bits_of_a_single_process(workers, trouble):
    names = [f"worker-{number}" for number in range(workers)]
    task, sgd = LeastSquares(7, 53), Sgd(lr=0.01, momentum=0.9, weight_decay=1e-4)
    conditions = {
        "none": Conditions(),
        "bad network": Conditions(delay=(0.001, 0.3), drop=0.05, double=0.2),
        "slow workers": Conditions(slow={"worker-0": 10.0}, stragglers=0.2),
        "replaced workers": Conditions(delay=(0.001, 0.2), double=0.1),
    }[trouble]
    config = make_config("bsp", workers=workers, servers=3, batch_size=4, on_lost_worker="wait")
    cluster = Cluster(workers, config, task.gradient, sgd, task.length, 15, conditions)
    for name in reversed(names):
        cluster.start_worker(name)
    if trouble == "replaced workers":
        for number, name in enumerate(names):
            cluster.after(
                0.9 + 0.37 * number, lambda name=name: cluster.crash_worker(name, 0.5 + 5.0 * (name == names[0]))
            )

    cluster.until_finished(400.0)

    versions, weights = trained(cluster)
    (rounds,) = versions
    expected = single_process(task, names, rounds, 4, sgd)
    assert rounds == 15
    assert weights.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", some(LOCK_STEP_SEEDS, LOCK_STEP_SEEDS[::5]))
def test_bsp_gives_the_bits_of_a_single_process_whatever_goes_back(seed):
    check_bits(seed)


def test_one_seed_is_one_schedule(ledger):
    runs = [chaotic(3, "asp", HAPPENINGS[-1], ledger) for _ in range(2)]

    for cluster in runs:
        cluster.until_finished(400.0)

    assert len({cluster.now for cluster in runs}) == 1
    assert trained(runs[0])[1].tobytes() == trained(runs[1])[1].tobytes()


@pytest.mark.parametrize("seed", [486_007, 859_119, 859_225])
def test_a_worker_comes_back_to_slices_that_have_lost_different_pushes_of_its_earlier_process(seed, ledger):
    run_schedule(seed, "bsp sparse", ("restart", "join", "replace", "silence", "leave"), ledger)


# joins, leaves, deaths and the end
def begun(
    seed: int, config: Config, optimizer: Optimizer, workers: int, rounds: int, conditions: Conditions | None = None
) -> Cluster:
    """A run of this number of rounds, and the first workers that it begins with."""
    servers = config.servers
    length = servers * len(NAMES) * CLOCKS
    cluster = Cluster(
        seed, config, one_hot(NAMES, CLOCKS, servers), optimizer, length, rounds, conditions or Conditions()
    )
    for name in NAMES[:workers]:
        cluster.start_worker(name)
    return cluster


@pytest.mark.parametrize("seed", range(8))
def test_rounds_stay_whole_while_workers_come_and_go(seed, ledger):
    conditions = Conditions(delay=(0.001, 0.05), view_delay=0.7)
    cluster = begun(seed, make_config("bsp", workers=5, start_when=3, servers=3), ledger, 3, 32, conditions)
    cluster.after(0.4 + seed * 0.03, lambda: cluster.start_worker(NAMES[3]))
    cluster.after(0.5 + seed * 0.02, lambda: cluster.start_worker(NAMES[4]))
    cluster.after(2.0 + seed * 0.05, lambda: cluster.tell_to_leave(NAMES[0]))

    cluster.until_finished(400.0)

    check_ledger(cluster, is_lossless=True)
    versions = {server.slice.version for server in cluster.servers}
    pushes = ledger_of(cluster, 0).sum()
    assert len(versions) == 1
    assert pushes / 5 <= versions.pop() <= pushes / 3 + 2


@pytest.mark.parametrize("policy", ["bsp", "ssp:1", "asp"])
def test_the_budget_is_overrun_by_what_is_under_way_only(policy, ledger):
    for seed in range(10):
        cluster = chaotic(seed, policy, (), ledger)

        cluster.until_finished(400.0)

        # lock-step names its last round two rounds before, while members still come and go
        most, least = (2, 1) if policy == "bsp" else (1, 0)
        over = cluster.servers[0].slice.clocks.examples - cluster.examples
        assert -least * 4 <= over <= most * 4, seed


@pytest.mark.parametrize("policy", ["bsp", "ssp:1"])
def test_a_dead_worker_delays_the_others_by_its_lease_and_a_round(policy, ledger):
    for seed in range(10):
        config = make_config(policy, workers=4, servers=2)
        cluster = begun(seed, config, ledger, 4, 20)
        cluster.after(1.0 + seed * 0.013, lambda cluster=cluster: cluster.crash_worker("worker-2"))

        cluster.until_finished(400.0)

        for server in cluster.servers:
            longest = max(later - earlier for (earlier, _), (later, _) in pairwise(server.rounds))
            assert 10.0 < longest <= config.lease + 1.0, seed


def test_a_slow_worker_that_beats_is_never_expelled(ledger):
    conditions = Conditions(slow={"worker-1": 300.0})
    cluster = begun(1, make_config("bsp", workers=4, servers=2, lease=4), ledger, 4, 5, conditions)

    cluster.until_finished(400.0)

    assert cluster.run.membership.incarnations == dict.fromkeys(NAMES[:4], 1)
    assert ledger_of(cluster, 1)[:4].sum() == 4 * 5


def test_a_thawed_worker_is_fenced_and_comes_back(ledger):
    conditions = Conditions(step=0.5, slow={"worker-1": 50.0})
    cluster = begun(5, make_config("bsp", workers=3, servers=2), ledger, 3, 60, conditions)

    def freeze() -> None:
        cluster.workers["worker-1"].is_silent = True

    cluster.after(0.5, freeze)
    cluster.after(26.0, cluster.conditions.slow.clear)

    cluster.until_finished(400.0)

    assert cluster.run.membership.incarnations["worker-1"] == 2
    check_ledger(cluster, is_lossless=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_worker_that_no_seat_is_free_for_waits_and_ends_with_the_run(policy, ledger):
    cluster = begun(2, make_config(policy, workers=2, servers=2), ledger, 3, 12)

    cluster.until_finished(400.0)

    assert sorted(cluster.run.membership.incarnations) == sorted(cluster.acknowledged_workers())
    assert len(cluster.run.membership.incarnations) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_budget_per_worker_lets_every_worker_do_its_share(policy, ledger):
    conditions = Conditions(slow={"worker-3": 4.0})
    cluster = begun(2, make_config(policy, workers=4, servers=2, budget="per_worker"), ledger, 4, 5, conditions)

    cluster.until_finished(400.0)

    assert [int(share) for share in ledger_of(cluster, 1)[:4].sum(axis=1)] == [cluster.examples] * 4

"""Runs that diverge, in virtual time: all slices go back to good weights, the rate is halved, and training goes on, or the run
gives up after the stated number."""

import random
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.settings.stopping import DivergenceConfig
from paceline.core.values import Vector
from tests.support.ledger import Ledger
from tests.support.nights import seeds, some
from tests.support.virtual import Cluster, make_config
from tests.support.virtual_chaos import DROPPING, PLAIN, chaotic, check_ledger
from tests.support.virtual_time import Task

POLICIES = ("bsp", "ssp:1", "asp", "kbuffered:2", "shat", "local_sgd:2", "easgd:2")
TROUBLES: tuple[tuple[str, ...], ...] = (
    (),
    ("crash",),
    ("replace",),
    ("silence",),
    ("join", "leave"),
    ("all leave",),
    ("stop",),
    ("restart",),
    ("chief restart",),
    ("old restart",),
    ("restart", "chief restart"),
    ("join", "leave", "crash", "replace"),
    ("chief restart", "replace", "leave"),
    ("restart", "join", "replace", "silence", "leave"),
    ("restart", "join", "replace", "stop"),
)
"""What else happens to runs that diverge."""
CHAOTIC = ("bsp", "ssp:1", "asp", "kbuffered:2", "shat", "local_sgd:2", "backup", "dana")
CURVE = 10.0
"""Of the loss: plain steps diverge from a rate of 2 / CURVE on."""
LENGTH = 64


def downhill(worker: str, clock: int, local: Vector) -> Vector:
    with np.errstate(all="ignore"):
        gradient: Vector = (CURVE * (local - 1)).astype(np.float32)
    return gradient


def diverging(policy: str, lr: float, rounds: int = 400, seed: int = 1, **settings: Any) -> Cluster:
    settings = {"workers": 2, "servers": 2, "heartbeat": 0.1, "schedule": {"lr_scale": "none"}} | settings
    config = make_config(policy, **settings)
    cluster = Cluster(seed, config, downhill, Sgd(lr=lr, momentum=0, weight_decay=0), LENGTH, rounds)
    for name in ("worker-0", "worker-1"):
        cluster.start_worker(name)
    return cluster


def said(run: Run) -> list[str]:
    return [each.said for each in run.warnings.listed if each.kind.startswith("rolled_back")]


@pytest.mark.parametrize("policy", some(POLICIES, ["bsp", "asp", "easgd:2"]))
def test_a_run_that_diverges_goes_back_on_both_slices_and_trains_at_a_lower_rate(policy: str) -> None:
    cluster = diverging(policy, lr=0.6, divergence={"rollbacks": 5, "factor": 0.25})

    cluster.until_finished(600.0)

    done = cluster.run.divergence.done
    assert 1 <= done <= 5
    assert cluster.run.reason == "the budget of epochs is spent"
    assert [server.slice.switch.rate for server in cluster.servers if server.slice.switch] == [0.25**done] * 2
    assert [server.slice.lr for server in cluster.servers] == [pytest.approx(0.6 * 0.25**done)] * 2
    for server in cluster.servers:
        assert np.abs(server.slice.folding.current().values - 1).max() < 0.1


@pytest.mark.parametrize(
    ("losses", "why"), [(False, "no worker has a finite gradient any more ("), (True, "the loss explodes (")]
)
def test_what_is_said_names_the_cause_the_version_the_rate_and_how_often(losses: bool, why: str) -> None:
    cluster = diverging("bsp", lr=0.6, divergence={"losses": losses})

    cluster.until_finished(600.0)

    first, *_ = said(cluster.run)
    assert first.startswith(why)
    assert "the run went back to version 0 (epoch 0.0), learning rate x 0.5; 1 of 3" in first


def test_a_run_that_still_diverges_gives_up_after_the_stated_number() -> None:
    cluster = diverging("bsp", lr=1e4, divergence={"rollbacks": 2})

    cluster.until_finished(600.0)

    assert cluster.run.divergence.done == len(said(cluster.run)) == 2
    assert "it went back 2 times, to a learning rate x 0.25 (divergence.rollbacks=2)" in cluster.run.reason
    assert cluster.run.divergence.gave_up


def test_without_rollbacks_a_run_ends_where_no_gradient_is_finite_as_ever() -> None:
    cluster = diverging("bsp", lr=1e4, divergence={"rollbacks": 0})

    cluster.until_finished(600.0)

    assert cluster.run.divergence.done == 0
    assert cluster.run.reason.startswith("no worker has a finite gradient any more")
    assert cluster.run.reason.endswith("so nothing can be learned")


@pytest.mark.parametrize("policy", ["bsp", "asp"])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("delay", some([0.0, 0.05, 0.2, 0.5, 1.0], [0.05]))
def test_a_server_that_dies_between_order_and_completion_goes_back_all_the_same(
    policy: str, index: int, delay: float
) -> None:
    cluster = diverging(policy, lr=0.6, divergence={"rollbacks": 3, "factor": 0.25})
    while not cluster.run.divergence.done:
        cluster.next_event()
    cluster.after(delay, lambda: cluster.servers[index].crash(0.5))

    cluster.until_finished(600.0)

    assert cluster.run.reason == "the budget of epochs is spent"
    rate = 0.25**cluster.run.divergence.done
    assert [server.slice.switch.rate for server in cluster.servers if server.slice.switch] == [rate] * 2
    for server in cluster.servers:
        assert np.abs(server.slice.folding.current().values - 1).max() < 0.1


def test_a_run_that_diverges_late_goes_back_to_a_later_snapshot_and_trains_again_what_it_lost() -> None:
    cluster = diverging("bsp", lr=0.01, rounds=1000)
    cluster.after(10.0, lambda: spoil(cluster))

    cluster.until_finished(600.0)

    (first,) = said(cluster.run)
    assert "went back to version 0 " not in first
    clocks = cluster.servers[0].slice.clocks
    assert clocks.discarded > 0
    assert clocks.trained >= cluster.run.budget.total
    assert cluster.servers[1].slice.clocks.discarded == clocks.discarded


def test_epochs_that_are_trained_again_are_scored_again() -> None:
    cluster = diverging("bsp", lr=0.01, rounds=1, epochs=1000)
    run, before, after = cluster.run, list[int](), list[int]()
    cluster.after(10.0, lambda: spoil(cluster))

    while run.phase is not RunPhase.FINISHED:
        cluster.next_event()
        due = run.due_score()
        if due is not None and not due[1]:
            (after if run.divergence.done else before).append(due[0])
            run.score(Score(due[0], 0.0, [1], {"validation_loss": 1.0}), cluster.now)

    assert max(before) >= min(after) > 0
    epochs = [each.epoch for each in run.scoring.judged]
    assert epochs == sorted(set(epochs))


def spoil(cluster: Cluster) -> None:
    """The weights become such that no gradient is finite."""
    for server in cluster.servers:
        server.slice.folding.current().values[:] = np.inf


def test_a_change_of_policy_keeps_the_rate() -> None:
    cluster = diverging("bsp", lr=0.6, divergence={"factor": 0.1})
    while not cluster.run.divergence.done or cluster.run.policy_change.is_under_way:
        cluster.next_event()
    assert cluster.run.phase is RunPhase.TRAINING

    def switch(run: Run) -> None:
        run.switch(make_config("asp").policy, lambda: cluster.servers[0].slice.clocks)

    Task(cluster, cluster.call_chief(switch))
    cluster.until_finished(600.0)

    made = cluster.servers[1].slice.switch
    assert (made.policy["name"], made.rate) == ("asp", 0.1)


@pytest.mark.parametrize(
    ("key", "value"), [("rollbacks", -1), ("rollbacks", 101), ("factor", 0), ("factor", 1.5), ("factor", "half")]
)
def test_a_setting_that_makes_no_sense_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        DivergenceConfig(**{key: value})


# at random moments
@pytest.mark.parametrize("policy", CHAOTIC)
@pytest.mark.parametrize("numbers", seeds(1, 3))
def test_a_run_that_diverges_keeps_every_promise_whatever_else_happens(
    policy: str, numbers: range, ledger: Ledger
) -> None:
    """By day each policy meets every fifth kind of trouble, each another fifth."""
    for trouble in TROUBLES if numbers.start else TROUBLES[CHAOTIC.index(policy) % 5 :: 5]:
        for seed in numbers:
            run_schedule(seed, policy, trouble, ledger)


def test_slices_that_were_trained_again_with_backup_workers_do_not_wait_for_each_other_for_ever(ledger: Ledger) -> None:
    """Both servers lost all rounds; after the replays each slice waited for two workers that waited on the other."""
    run_schedule(441303, "backup", ("old restart",), ledger)


def test_a_worker_that_repeats_a_clock_on_one_slice_and_waits_on_another_is_not_waited_for(ledger: Ledger) -> None:
    """Worker 2 came back; one slice had lost its last clock and kept it waiting, the others had it and waited for the next."""
    run_schedule(685226, "backup", ("restart", "join", "replace", "silence", "leave"), ledger)


def run_schedule(seed: int, policy: str, trouble: tuple[str, ...], optimizer: Optimizer) -> Cluster:
    """One run that diverges once or more; AssertionError that names it where a promise breaks."""
    rng = random.Random(f"{seed} {policy} {trouble}")
    kind = rng.choice(["diverge", "diverge", "too fast"])
    # a restarted chief waits as long for a worker that never beats, and meanwhile it does not go back
    settings = {"heartbeat": rng.choice([0.2, 0.5]), "schedule": {"lr_scale": "none"}, "start_timeout": 60}
    divergence = {"rollbacks": rng.choice([1, 2, 3]), "factor": 0.5}
    cluster = chaotic(
        seed, policy, (kind, *trouble), optimizer, rounds=40, clocks=1024, divergence=divergence, **settings
    )
    try:
        cluster.until_finished(900.0)
        check_returns(cluster)
        name = cluster.config.policy.name
        check_ledger(
            cluster,
            is_lossless=not any("restart" in what for what in trouble),
            may_drop=name in DROPPING,
            is_plain=name in PLAIN,
        )
    except Exception as error:
        raise AssertionError(f"seed {seed}, diverging, {policy}, {kind}+{'+'.join(trouble)}: {error}") from error
    return cluster


def check_returns(cluster: Cluster) -> None:
    """The rate is lowered once for each return, and on all slices; all go back to the same snapshots; the run ends as it
    says."""
    run, factor, most = cluster.run, cluster.config.divergence.factor, cluster.config.divergence.rollbacks
    assert run.divergence.done <= most, "it went back more often than it may"
    view = run.membership.view
    assert view.made == view.switch, "a return never ended"
    orders: dict[int, Any] = {}
    for server in cluster.servers:
        for change, found in server.went_back:
            assert change.rate == factor**change.number, f"the rate after return {change.number} is {change.rate}"
            assert orders.setdefault(change.number, change) == change, "slices followed different orders"
            assert found == change.back[server.index], f"server {server.index} took {found} of {change.back}"
            is_level = len(set(change.back)) == 1
            assert is_level or not run.membership.rounds, f"in lock-step they went back to versions {change.back}"
        assert server.switch_number == run.divergence.done, f"server {server.index} did not go back"
        made = server.slice.switch
        assert (made.rate if made is not None else 1) == run.divergence.rate, f"the rate of server {server.index}"
    assert sorted(orders) == list(range(1, run.divergence.done + 1))
    gave_up = "so it could not go back" in run.reason or f"divergence.rollbacks={most}" in run.reason
    assert gave_up or run.reason.startswith(("the budget of epochs is spent", "asked to")), run.reason
    assert gave_up <= (run.divergence.done == most or run.divergence.good is None), "it gave up too early"

"""Policies against worked examples, and one contract for all in the folder."""

import itertools
import math
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bookkeeping import bookkeeping_rows
from paceline.core import registry
from paceline.core.errors import Behind, ConfigError
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.builtin.shat import Shat
from paceline.core.policies.policy import PACKAGE, build_policy, from_shorthand
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Options
from paceline.core.values import Base, Outcome, Seat, Switch, View
from paceline.settings.load_settings import load
from tests.support.nights import seeds
from tests.support.one_slice import PLAIN, OneSlice, OneWorker, who

POLICIES = registry.names(PACKAGE)
BACKUPS = [("backup", {"backups": count}) for count in (0, 1, 2)]


# BSP, 3.1
@pytest.mark.parametrize(
    ("first", "second", "examples", "weights"),
    [
        ((1, 0), (3, 2), 1, [0.8, 0.9]),
        ((1, 0), (5, 0), 3, [0.8, 1.0]),
        ((), (2, 2), 1, [0.8, 0.8]),
        ((), (), 1, [1.0, 1.0]),
    ],
    ids=["the mean", "by their examples", "an empty one counts for the round and weighs nothing", "only empty ones"],
)
def test_bsp_folds_the_mean_of_a_round(first, second, examples, weights):
    one = OneSlice("bsp", weights=(1.0, 1.0))

    assert one.push("a", *first, examples=examples) == []
    replies = one.push("b", *second)

    assert who(replies) == {"a", "b"}
    assert one.weights == pytest.approx(weights)
    assert one.slice.version == 1


def test_bsp_ignores_a_push_with_an_old_base():
    one = OneSlice("bsp", weights=(1.0, 1.0))
    one.push("a", 1, 0)
    one.push("b", 3, 2)

    one.push("a", 9, 9, base=Base(1, 0))
    one.push("b", 0, 0)

    assert one.weights == pytest.approx([0.8, 0.9])
    assert one.slice.clocks.entry("a").outcome is Outcome.DROPPED
    assert one.slice.clocks.entry("a").reason == "old_version"
    assert one.slice.version == 2


def test_bsp_adds_in_worker_order_whatever_the_order_of_arrival():
    values = {"worker-2": 1e8, "worker-3": -1e8, "worker-10": 1.0}
    results = set()
    for order in (("worker-2", "worker-3", "worker-10"), ("worker-10", "worker-3", "worker-2")):
        one = OneSlice("bsp", workers=tuple(values), weights=(0.0,))
        for worker in order:
            one.push(worker, values[worker])
        results.add(one.weights[0])

    assert [pytest.approx(-0.1 / 3)] == list(results)  # (1e8 - 1e8) + 1; in another order the 1 is lost


def test_bsp_drops_a_push_for_a_round_that_is_not_open_yet():
    one = OneSlice("bsp")
    one.seats("a", "b", c=Seat(1, handicap=2))

    one.push("c", 100.0)
    one.push("a", 1.0)
    one.push("b", 1.0)

    assert one.slice.clocks.entry("c").outcome is Outcome.DROPPED
    assert one.weights == pytest.approx([-0.1])


def test_a_departure_closes_the_bsp_round_and_keeps_the_push_of_who_left():
    one = OneSlice("bsp", workers=("a", "b", "c"))
    one.push("a", 1.0)
    one.push("b", 3.0)

    replies = one.sent(one.seats("a"))

    assert who(replies) == {"a"}
    assert one.weights == pytest.approx([-0.2])


def test_a_round_does_not_wait_for_the_order_of_a_member_that_is_done():
    one = OneSlice("bsp")
    one.push("a", 1.0)
    one.push("b", 1.0)
    one.seats(a=Seat(1, 0, last=1), b=Seat(1, 0))

    assert one.slice.next_in_order() == "b"
    assert who(one.push("b", 1.0)) == {"b"}


# ASP, 3.2
def test_asp_folds_at_once_and_counts_staleness():
    one = OneSlice("asp", weights=(1.0,))

    (first,) = one.push("a", 2.0)
    assert one.weights == pytest.approx([0.8])
    (second,) = one.push("b", 1.0)

    assert one.weights == pytest.approx([0.7])
    assert (first.staleness, first.weights.version) == (0, 1)
    assert (second.staleness, second.weights.version) == (1, 2)


def test_an_empty_update_under_asp_advances_the_clock_only():
    one = OneSlice("asp", weights=(1.0,))

    (reply,) = one.push("a")

    assert (reply.clock, one.slice.version, one.weights) == (1, 0, [1.0])


# SHAT, 2 and 3.4
@pytest.mark.parametrize(
    ("reading", "members", "log", "root"),
    [
        ("complement", 2, 0.279, 0.646),
        ("complement", 4, 0.459, 0.625),
        ("complement", 8, 0.579, 0.691),
        ("complement", 16, 0.662, 0.766),
        ("difference", 2, 0, 0),
        ("difference", 3, 0, 0.134),
        ("difference", 4, 0.038, 0.333),
        ("difference", 8, 0.450, 0.596),
        ("difference", 16, 0.615, 0.733),
        ("reciprocal", 2, 0.721, 0.354),
        ("reciprocal", 16, 0.338, 0.234),
    ],
)
def test_the_papers_alpha_of_equal_workers_by_each_reading(reading, members, log, root):
    for variant, expected in (("log", log), ("root", root)):
        policy = Shat(variant=variant, reading=reading, alpha_min=0)

        assert policy.alpha(members - 1, members) == pytest.approx(expected, abs=5e-4)


def test_alpha_of_a_straggler_by_both_counts():
    assert Shat(reading="difference", alpha_min=0).alpha(9, 4) == pytest.approx(0.679401, abs=1e-6)
    assert Shat(reading="difference", count="inclusive").alpha(9, 4) == pytest.approx(0.711461, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "workers", "is_told"),
    [
        ({}, 2, False),
        ({"reading": "difference", "alpha_min": 0}, 2, True),
        ({"reading": "difference", "alpha_min": 0}, 4, False),
        ({"reading": "difference"}, 4, True),
        ({"reading": "difference", "alpha": 0.1}, 2, False),
        ({"alpha_min": 0.7}, 8, True),
        ({"alpha_min": 0.7}, 1, False),
    ],
)
def test_a_weight_that_is_at_its_floor_for_equal_workers_is_told(settings, workers, is_told):
    found = build_policy(Options(name="shat", **settings)).caution(PLAIN, workers)

    assert ("at its floor, policy.alpha_min" in found) == is_told


def test_shat_mixes_as_in_the_worked_example():
    one = OneSlice("shat", workers="abcd", weights=(1.0, 2.0), reading="difference", alpha_min=0)
    (reply,) = one.push("a", 1, -2)
    local, gradient = np.array([0.8, 2.4]), np.array([1.0, -2.0])

    alpha = one.slice.policy.alpha(9, reply.members)
    stepped = local - reply.lr * gradient
    mixed = (1 - alpha) * stepped + alpha * reply.weights.values

    assert reply.weights.values == pytest.approx([0.9, 2.2])
    assert stepped == pytest.approx([0.7, 2.6])
    assert mixed == pytest.approx([0.83588, 2.32824], abs=1e-5)


def test_shat_counts_the_pushes_of_others_since_the_last_own_one():
    one = OneSlice("shat", workers="0123")

    counts = [one.push(worker, 1.0)[0].others for worker in "01231231230"]

    assert counts == [None, None, None, None, 2, 2, 2, 2, 2, 2, 9]


def test_the_first_exchange_after_a_join_copies_the_pulled_weights():
    one = OneSlice("shat", workers="ab")
    one.push("a", 1.0)
    one.push("a", 1.0)
    one.seats("b", a=Seat(incarnation=2, handicap=0))

    (reply,) = one.push("a", 1.0)

    assert reply.others is None
    assert one.slice.policy.alpha(reply.others, 2) == 1.0


@pytest.mark.parametrize("reading", ["complement", "difference", "reciprocal"])
@pytest.mark.parametrize(("others", "members"), [(5, 1), (None, 4)])
def test_alpha_at_the_edges(others, members, reading):
    assert Shat(reading=reading).alpha(others, members) == 1


@pytest.mark.parametrize(("reading", "expected"), [("complement", 1), ("difference", 0.25), ("reciprocal", 0.25)])
def test_alpha_of_a_worker_that_pushed_twice_in_a_row(reading, expected):
    assert Shat(reading=reading).alpha(0, 4) == expected


@given(
    st.integers(0, 10_000),
    st.integers(1, 1024),
    st.sampled_from(["log", "root"]),
    st.sampled_from(["complement", "difference", "reciprocal"]),
    st.floats(0, 1),
)
def test_alpha_stays_within_its_bounds_and_goes_one_way_with_the_pushes_of_others(
    others, members, variant, reading, smallest
):
    policy = Shat(variant=variant, reading=reading, alpha_min=smallest)

    first, second = policy.alpha(others, members), policy.alpha(others + 1, members)

    assert smallest <= first <= 1
    assert second <= first if reading == "complement" else second >= first


def test_shat_root_divides_by_the_root_of_the_members_and_a_constant_alpha_by_nothing():
    assert build_policy(Options(name="shat_root")).alpha(3, 4) == pytest.approx(1 - (3 / 4) / 2)
    assert build_policy(Options(name="shat", variant="root")).alpha(3, 4) == pytest.approx(0.625)
    assert build_policy(Options(name="shat", alpha=0.5)).alpha(1000, 4) == 0.5, "a constant takes the formula's place"


def test_shat_takes_its_own_step_with_the_runs_optimizer_where_it_is_asked_to():
    """The worker's velocity is 1, then 1.5; the server's grows in the same way. Rate .1, alpha .5."""
    optimizer = Sgd(lr=0.1, momentum=0.5, weight_decay=0.0)
    one = OneSlice("shat", workers="ab", optimizer=optimizer, alpha=0.5, local_step="optimizer")
    worker = OneWorker(one, "a")

    (first,) = worker.push([1])
    worker.take(first, gradient=[1])
    (second,) = worker.push([1])
    worker.take(second, gradient=[1])

    assert (first.others, one.weights) == (None, pytest.approx([-0.25]))
    assert worker.local == pytest.approx([-0.25])  # from -.1, which the first reply brought: half of -.25, twice
    worker.push([1])
    assert worker.local == pytest.approx([-0.25 - 0.175])


def test_shat_without_an_own_step_only_mixes():
    one = OneSlice("shat", workers="ab", alpha=0.5, local_step="none")
    worker = OneWorker(one, "a")
    worker.own.local[:] = [1.0]

    for _ in range(2):
        (reply,) = worker.push([1])
        worker.own.local[:] = [1.0]
        worker.take(reply, gradient=[1])

    assert one.weights == pytest.approx([-0.2])
    assert worker.local == pytest.approx([(1 - 0.2) / 2])


# ENSEMBLE, 3.3
def test_ensemble_steps_alone_and_never_pulls_while_the_server_keeps_the_mean_of_what_all_did():
    """Four workers: the global model moves a quarter as far as one worker's."""
    one = OneSlice("ensemble", workers="abcd", weights=(1.0, 2.0))
    worker = OneWorker(one, "a")
    worker.own.local[:] = [0.8, 2.4]

    (reply,) = worker.push([1, -2])
    worker.take(reply, gradient=[1, -2])

    assert one.weights == pytest.approx([0.975, 2.05])
    assert worker.local == pytest.approx([0.7, 2.6])
    assert not any(worker.policy.pulls(clock) for clock in range(1, 10))


@pytest.mark.parametrize("optimizer", [Sgd(lr=0.1, momentum=0.9, weight_decay=0.01), Adam(lr=0.1)])
def test_ensembles_global_model_is_the_mean_of_models_that_any_optimizer_steps(optimizer):
    one = OneSlice("ensemble", weights=(1.0, 2.0), optimizer=optimizer, local_step="optimizer")
    workers = [OneWorker(one, name) for name in "ab"]
    alone = [np.array([1.0, 2.0], np.float32) for _ in workers]
    slots = [optimizer.new_slots(2) for _ in workers]

    for step in (1, 2, 3):
        for number, (worker, gradient) in enumerate(zip(workers, ([1.0, -2.0], [0.5, 3.0]), strict=True)):
            (reply,) = worker.push(gradient)
            worker.take(reply, gradient)
            optimizer.step(alone[number], alone[number], np.float32(gradient), 1.0, 0.1, slots[number], step)

    assert [worker.local for worker in workers] == [pytest.approx(each.tolist()) for each in alone]
    assert one.weights == pytest.approx(np.mean(alone, axis=0).tolist(), abs=1e-6)


# SSP, 3.5
def test_ssp_parks_the_worker_that_is_ahead_until_the_slow_one_pushes_and_the_weights_are_those_of_that_moment():
    one = OneSlice("ssp", bound=1)

    assert who(one.push("a", 1.0)) == {"a"}
    assert one.push("a", 1.0) == []
    assert one.weights == pytest.approx([-0.2])

    assert {reply.worker: reply.weights.version for reply in one.push("b", 1.0)} == {"a": 3, "b": 3}


def test_a_departure_frees_who_waited_for_the_slowest():
    one = OneSlice("ssp", bound=0)
    assert one.push("a", 1.0) == []

    assert who(one.seats("a")) == {"a"}


def test_ssp_does_not_wait_for_a_member_that_has_reached_its_last_clock():
    one = OneSlice("ssp", bound=0)
    one.push("a", 1.0)
    one.push("b", 1.0)
    one.seats(a=Seat(1, 0), b=Seat(1, 0, last=1))

    assert who(one.push("a", 1.0)) == {"a"}


# DSSP, 3.6
def pace(one, *pushes):
    """Pushes (worker, time) one after the other; which of them, by index, their own reply answers at once."""
    return {index for index, (worker, time) in enumerate(pushes) if worker in who(one.push(worker, 1.0, time=time))}


def both(worker, *times):
    return [(worker, time) for time in times]


UNEVEN = [*both("p", 1, 2), ("q", 3), *both("p", 4, 5), ("q", 7), ("p", 9)]


def test_dssp_grants_the_one_iteration_after_which_both_push_together():
    """A[p] = (10, 9), A[q] = (7, 3), cap 12: the slow one is due at 11, 15, ..., so r = 1, and the OK at 10 is it."""
    one = OneSlice("dssp", workers="pq")
    pace(one, *UNEVEN)

    answered = pace(one, *both("p", 10, 11))

    assert answered == {0}
    assert who(one.push("q", 1.0, time=11)) == {"q"}  # p is 4 ahead still
    assert who(one.push("q", 1.0, time=15)) == {"p", "q"}


def test_dssp_as_published_gives_one_iteration_more_than_granted():
    one = OneSlice("dssp", workers="pq", bounded=False)
    pace(one, *UNEVEN)

    assert pace(one, *both("p", 10, 11)) == {0, 1}


@pytest.mark.parametrize(
    ("upper", "before", "pushes"),
    [
        # A[p] = (10, 8), A[q] = (9, 4), cap 4: the slow one is due at 14, p pushes at 10, 12, 14: r = 2
        (7, [*both("p", 1, 2, 3), ("q", 4), *both("p", 5, 8), ("q", 9)], both("p", 10, 12, 14)),
        # A[p] = (12, 11), A[q] = (5, 0), cap 3: 12, 13, 14, 15 against 10, 15, ...: r = 3 meets the second, k = 1
        (6, [("q", 0), *both("p", 1, 2, 3, 4), ("q", 5), ("p", 11)], both("p", 12, 13, 14, 15)),
    ],
    ids=["the second example", "later pushes of the slow worker"],
)
def test_dssp_grants_iterations_up_to_a_push_of_the_slow_worker(upper, before, pushes):
    one = OneSlice("dssp", workers="pq", upper=upper)
    pace(one, *before)

    assert pace(one, *pushes) == set(range(len(pushes) - 1))


@pytest.mark.parametrize(("upper", "answered"), [(15, set()), (16, {0})])
def test_dssp_grants_nothing_beyond_the_upper_bound(upper, answered):
    """t = [16, 0]: at upper 15 the cap is 0; at 16 it is 1, and 11 is when the slow one is due."""
    one = OneSlice("dssp", workers=(), upper=upper)
    one.seats(p=Seat(1, handicap=14), q=Seat(1, handicap=-2))
    pace(one, *both("q", 3, 7), ("p", 9))

    assert one.slice.clocks.lead("p") == 15
    assert pace(one, ("p", 10)) == answered


def test_dssp_knows_no_interval_after_a_first_push_and_grants_nothing():
    one = OneSlice("dssp", workers="pq", lower=1)

    assert pace(one, ("q", 1), *both("p", 2, 3, 4)) == {0, 1, 2}


@pytest.mark.parametrize("pushes_before", [6, 5], ids=["no push since", "one push since"])
def test_dssp_does_not_reckon_with_the_pace_of_a_slow_worker_before_it_came_back(pushes_before):
    one = OneSlice("dssp", workers="pq")

    pace(one, *UNEVEN[:pushes_before])
    one.seats("p", q=Seat(2, handicap=0))
    pace(one, *UNEVEN[pushes_before:])

    assert pace(one, ("p", 10)) == set()


def test_dssp_does_not_reckon_with_a_worker_whose_last_clock_is_done():
    """d, level with q, pushed at 3 and 7 and would be due at 11 (r = 1), but nothing comes; of q too little is known."""
    one = OneSlice("dssp", workers="pqd")
    pace(one, *both("p", 1, 2), ("d", 3), ("p", 4), ("d", 7), ("q", 8), ("p", 9))
    one.seats(p=Seat(1, 0), q=Seat(1, 0), d=Seat(1, handicap=-1, last=2))

    assert pace(one, ("p", 10)) == set()


@given(st.integers(0, 4), st.integers(0, 6), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=120))
def test_dssp_keeps_every_lead_at_most_one_beyond_its_upper_bound(lower, more, schedule):
    one = OneSlice("dssp", workers="abcd", lower=lower, upper=lower + more)
    waiting, now = set(), 0.0

    for number, pause in schedule:
        worker, now = "abcd"[number], now + pause
        if worker not in waiting:
            waiting = (waiting | {worker}) - who(one.push(worker, 1.0, time=now))
            assert one.slice.clocks.lead(worker) <= lower + more + 1


def worst_lead(**options):
    """Of a worker that pushes every second, next to one that is ten times slower."""
    one, worst = OneSlice("dssp", workers="pq", **options), 0
    due, waiting = {"p": 1.0, "q": 10.3}, set()
    while due["q"] < 300:
        worker = min(due.keys() - waiting, key=due.__getitem__)
        now = due[worker]
        waiting.add(worker)
        for reply in one.push(worker, 1.0, time=now):
            waiting.discard(reply.worker)
            due[reply.worker] = now + (1.0 if reply.worker == "p" else 10.3)
        worst = max(worst, one.slice.clocks.lead("p"))
    return worst


def test_dssp_as_published_has_no_upper_bound_beside_a_worker_ten_times_slower():
    assert worst_lead() <= 16
    assert worst_lead(bounded=False) > 100


# EASGD, 3.7
def test_easgd_moves_worker_and_centre_towards_each_other():
    one = OneSlice("easgd", workers="abcd", weights=(0.0, 0.0))
    worker = OneWorker(one, "a")
    worker.own.local[:] = [1, 2]

    (reply,) = worker.push()
    worker.take(reply)

    assert one.weights == pytest.approx([0.225, 0.45])
    assert worker.local == pytest.approx([0.775, 1.55])


@given(st.integers(2, 9), st.lists(st.tuples(st.integers(0, 8), st.floats(-1, 1)), max_size=30))
def test_easgd_keeps_the_sum_of_all_models_and_the_centre(members, steps):
    names = "abcdefghi"[:members]
    one = OneSlice("easgd", workers=names)
    workers = {name: OneWorker(one, name) for name in names}

    for number, move in steps:
        worker = workers[names[number % members]]
        worker.own.local += np.float32(move)
        before = one.weights[0] + sum(other.local[0] for other in workers.values())
        (reply,) = worker.push()
        worker.take(reply)

        assert one.weights[0] + sum(other.local[0] for other in workers.values()) == pytest.approx(before, abs=1e-4)


def test_easgd_s_worker_alone_is_the_centre_and_trains_as_one_process_does():
    one = OneSlice("easgd", workers="a", weights=(1.0,))
    worker = OneWorker(one, "a")

    for model in (0.5, 0.25):
        worker.own.local[:] = model
        (reply,) = worker.push()
        worker.take(reply)
        assert (one.weights[0], worker.local[0]) == (model, model)


def test_easgd_is_eamsgd_where_the_optimizer_has_momentum_which_is_the_workers():
    """tau 2, g = 1 twice: v = 1, w_i = -.1; v = 1.9, w_i = -.29. Two have a = .45: the centre goes to .45 * -.29."""
    one = OneSlice("easgd", workers="ab", optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.0), tau=2)
    worker = OneWorker(one, "a")

    (reply,) = worker.push([1], [1])
    assert worker.local == pytest.approx([-0.29])
    worker.take(reply)

    assert worker.policy.most_steps == 2
    assert one.weights == pytest.approx([-0.1305])
    assert worker.local == pytest.approx([-0.29 + 0.1305], abs=1e-6)


def test_easgds_forces_follow_the_members():
    one = OneSlice("easgd", workers="abcd")
    one.seats("a", "b")

    one.push("a", 1.0)

    assert one.weights == pytest.approx([0.45])


# K-buffered, 6.1
@pytest.mark.parametrize("worker", "ab", ids=["of one worker", "of two workers"])
def test_kbuffered_steps_on_the_mean_of_k_pushes_and_nobody_waits(worker):
    one = OneSlice("kbuffered", weights=(1.0,), k=2)

    (first,) = one.push("a", 2.0)
    assert (one.weights, first.weights.version, first.outcome) == ([1.0], 0, Outcome.BUFFERED)
    (second,) = one.push(worker, 4.0)

    assert one.weights == pytest.approx([0.7])
    assert (second.weights.version, one.slice.version) == (1, 1)


def test_kbuffered_damps_by_the_root_of_the_staleness():
    """c's 6 is one version old: (6 / sqrt 2 + 2) / 2 = 3.12132, the divisor is K as in FedBuff."""
    one = OneSlice("kbuffered", workers="abc", weights=(1.0,), k=2, damped=True)
    one.push("a", 2.0)
    one.push("b", 4.0)

    (late,) = one.push("c", 6.0)
    one.push("b", 2.0)

    assert late.staleness == 1
    assert one.weights == pytest.approx([0.7 - 0.1 * (6 / math.sqrt(2) + 2) / 2])


def test_kbuffered_with_k_1_has_the_weights_of_asp():
    momentum = Sgd(lr=0.1, momentum=0.9, weight_decay=1e-4)
    asp, buffered = OneSlice("asp", optimizer=momentum), OneSlice("kbuffered", optimizer=momentum, k=1)

    for worker, gradient in (("a", 0.3), ("b", -1.7), ("a", 0.9), ("a", 2.1), ("b", 0.1)):
        asp.push(worker, gradient)
        buffered.push(worker, gradient)

        assert buffered.weights == asp.weights


def test_kbuffered_takes_half_of_the_members_rounded_up_where_k_is_not_given():
    one = OneSlice("kbuffered", workers="abcde")

    one.push("a", 1.0)
    one.push("b", 1.0)
    assert one.slice.version == 0
    one.push("c", 1.0)

    assert one.slice.version == 1


@pytest.mark.parametrize("name", ["kbuffered", "rennala"])
def test_a_buffer_without_members_does_not_fold_nothing(name):
    one = OneSlice(name)

    one.seats()

    assert one.slice.version == 0


# delay threshold, 6.2
def test_a_push_as_late_as_the_threshold_is_dropped_and_gets_fresh_weights():
    one = OneSlice("delay_threshold", workers="abc", threshold=2)
    for _ in range(5):
        one.push("a", 1.0)
    before = one.weights

    (late,) = one.push("c", 9.0, base=Base(1, 3))
    assert (late.outcome, late.reason, late.weights.version, one.weights) == (Outcome.DROPPED, "too_stale", 5, before)
    (in_time,) = one.push("b", 1.0, base=Base(1, 4))

    assert (in_time.outcome, in_time.staleness) == (Outcome.FOLDED, 1)
    assert one.weights == pytest.approx([before[0] - 0.1])


def test_the_threshold_is_four_times_the_members_where_it_is_not_given():
    one = OneSlice("delay_threshold")
    for _ in range(8):
        one.push("a", 1.0)

    (at_8,) = one.push("b", 1.0)
    (at_7,) = one.push("b", 1.0, base=Base(1, 1))

    assert (at_8.staleness, at_8.outcome) == (8, Outcome.DROPPED)
    assert (at_7.staleness, at_7.outcome) == (7, Outcome.FOLDED)


# backup workers, 6.3
def test_backup_steps_on_the_first_m_and_drops_the_late_one():
    one = OneSlice("backup", workers="abc", backups=1)

    assert one.push("a", 1.0) == []
    assert who(one.push("b", 3.0)) == {"a", "b"}
    (late,) = one.push("c", 9.0)

    assert one.weights == pytest.approx([-0.2])
    assert (late.outcome, late.reason, late.weights.version) == (Outcome.DROPPED, "old_version", 1)


def test_backup_with_one_worker_waits_for_nobody():
    one = OneSlice("backup", workers="a")

    assert [who(one.push("a", 1.0)) for _ in range(3)] == [{"a"}] * 3
    assert one.weights == pytest.approx([-0.3])


@pytest.mark.parametrize(("workers", "answering"), [(8, 7), (24, 22), (64, 60)])
def test_backup_spares_a_sixteenth_where_it_is_not_told(workers, answering):
    names = [f"worker-{number}" for number in range(workers)]
    one = OneSlice("backup", workers=names)

    sizes = [len(one.push(name, 1.0)) for name in names[:answering]]

    assert sizes == [0] * (answering - 1) + [answering]


@pytest.mark.parametrize("leaves", ["b", "bc"])
def test_nobody_waits_for_backups_that_leave(leaves):
    one = OneSlice("backup", workers="abc", backups=1)
    assert one.push("a", 1.0) == []

    replies = one.sent(one.seats(*(set("abc") - set(leaves))))

    assert who(replies) == {"a"}
    assert one.weights == pytest.approx([-0.1])


def test_backup_does_not_wait_for_members_that_are_done():
    """Four members, one to spare: with b and c done only d may be missing."""
    one = OneSlice("backup", workers="abcd", backups=1)
    for worker in "abcd":
        one.push(worker, 1.0)
    assert one.push("a", 1.0, base=Base(1, 1)) == []

    replies = one.sent(one.seats(a=Seat(1, 0), b=Seat(1, 0, last=1), c=Seat(1, 0, last=1), d=Seat(1, 0)))

    assert who(replies) == {"a"}


def test_an_empty_update_counts_for_backups_step():
    one = OneSlice("backup", workers="abcd", backups=1)

    assert one.push("a") == []
    assert one.push("b", 1.0) == []

    assert who(one.push("c", 3.0)) == {"a", "b", "c"}
    assert one.weights == pytest.approx([-0.2])


# staleness-aware, 6.4
@pytest.mark.parametrize(
    ("damp", "rates"), [("all", {0: 0.8, 4: 0.2, 32: 0.025}), ("outliers", {0: 0.8, 4: 0.8, 32: 0.2})]
)
def test_a_late_push_counts_less(damp, rates):
    policy = build_policy(Options(name="staleness_aware", damp=damp))

    assert {late: policy.rate(0.8, late, 8) for late in rates} == pytest.approx(rates)


def test_the_staleness_aware_rate_is_that_of_the_fold_and_of_the_reply():
    one = OneSlice("staleness_aware", workers="ab")
    for _ in range(4):
        one.push("a")  # empty: no fold, so not stale
        one.push("a", 1.0)
    before = one.weights[0]

    (late,) = one.push("b", 1.0)

    assert (late.staleness, late.lr) == (4, pytest.approx(0.025))
    assert one.weights == pytest.approx([before - 0.025])


# Rennala, 6.6
def test_rennala_steps_on_b_fresh_gradients_and_takes_several_of_one_worker():
    one = OneSlice("rennala", workers="abcd", b=2)

    assert who(one.push("a", 1.0)) == {"a"}
    assert who(one.push("a", 3.0)) == {"a"}
    assert one.weights == pytest.approx([-0.2])
    (late,) = one.push("b", 9.0)
    (fresh,) = one.push("b", 1.0)

    assert (late.outcome, late.reason, late.weights.version) == (Outcome.DROPPED, "old_version", 1)
    assert fresh.outcome is Outcome.BUFFERED


# DANA, 6.7
@pytest.mark.parametrize("between", [[], [((), 0.81)]], ids=["at once", "after a step without a gradient"])
def test_dana_pushes_where_its_own_momentum_leads(between):
    one = OneSlice("dana", workers="a", weights=(1.0,), momentum=0.9)
    worker = OneWorker(one, "a")

    for gradients, expected in (([[1.0]], 0.81), *between, ([[1.0]], 0.539)):
        (reply,) = worker.push(*gradients)
        worker.take(reply)

        assert one.weights == worker.local == pytest.approx([expected])


def test_danas_weight_decay_is_the_workers():
    """w = 1, g = 1, wd = .5: v = 1.5, u = .9 * 1.5 + 1.5 = 2.85."""
    one = OneSlice("dana", workers="a", weights=(1.0,), optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.5))

    OneWorker(one, "a").push([1.0])

    assert one.weights == pytest.approx([1 - 0.285])


# Downpour, 3.2
def test_downpour_moves_the_server_by_the_sum_of_the_gradients_since_the_last_push():
    one = OneSlice("downpour", weights=(1.0, 0.0), push_every=3)
    worker = OneWorker(one, "a")

    (reply,) = worker.push([1, 2], [2, 2], [3, -1])
    worker.take(reply)

    assert one.weights == worker.local == pytest.approx([0.4, -0.3])


def test_downpours_server_has_the_runs_momentum():
    """v = 3, w = -.3; v = .9 * 3 + 1 = 3.7, w = -.67."""
    one = OneSlice("downpour", optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.0), push_every=2)
    worker = OneWorker(one, "a")

    for gradients in ([1], [2]), ([0.5], [0.5]):
        (reply,) = worker.push(*gradients)
        worker.take(reply)

    assert one.weights == pytest.approx([-0.67])


def test_downpour_pushes_gradients_whole_that_are_too_small_to_move_a_weight():
    one = OneSlice("downpour", weights=(1.0,), optimizer=Sgd(lr=1e-6, momentum=0.0, weight_decay=0.0))
    worker = OneWorker(one, "a")
    before = worker.local[0]

    assert worker.policy.outgoing(np.array([1e-3], np.float32), worker.own).tolist() == pytest.approx([1e-3])
    assert before == worker.local[0]


def test_downpour_pulls_with_every_kth_push_only():
    policy = build_policy(Options(name="downpour", pull_every=3))

    assert [clock for clock in range(1, 10) if policy.pulls(clock)] == [3, 6, 9]


def test_downpour_pushes_nothing_for_steps_at_rate_0():
    one = OneSlice("downpour", weights=(1.0,))
    worker = OneWorker(one, "a")
    worker.own.lr = 0.0

    worker.push([5.0])

    assert one.weights == [1.0]


# local SGD and DiLoCo, 6.8
def round_of(one, workers, *gradients, examples=(1, 1)):
    """A round in which each worker takes the own steps given for it."""
    replies = []
    for worker, steps, count in zip(workers, gradients, examples, strict=True):
        replies += worker.push(*steps, examples=count)
    for reply, worker in itertools.product(replies, workers):
        if reply.worker == worker.name:
            worker.take(reply)


@pytest.mark.parametrize(
    ("gradients", "examples", "mean"),
    [
        ((([1], [2]), ([1],)), (1, 1), 0.8),  # from 1: two steps of -.1 and -.2 lead to .7, one of -.1 to .9
        ((([3],), ([1],)), (3, 1), 0.75),  # (3 * .7 + .9) / 4
        ((([3],), ()), (1, 1), 0.7),
    ],
    ids=["the mean", "by their examples", "no usable gradient"],
)
def test_local_sgd_takes_the_mean_of_the_models_by_their_examples(gradients, examples, mean):
    one = OneSlice("local_sgd", weights=(1.0,))
    workers = [OneWorker(one, name) for name in "ab"]

    round_of(one, workers, *gradients, examples=examples)

    assert one.weights == workers[0].local == workers[1].local == pytest.approx([mean])


def test_local_sgd_leaves_the_runs_optimizer_to_the_workers():
    """Momentum .9: -.1, then -.19. The server adds none: the second round goes on with the worker's."""
    one = OneSlice("local_sgd", workers="a", optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=0.0))
    workers = [OneWorker(one, "a")]

    round_of(one, workers, ([1], [1]), examples=(1,))
    assert one.weights == pytest.approx([-0.29])
    round_of(one, workers, ([1],), examples=(1,))

    assert one.weights == pytest.approx([-0.29 - 0.271])


def test_diloco_takes_a_nesterov_step_towards_the_mean():
    one = OneSlice("diloco", weights=(1.0,), outer_lr=0.7)
    workers = [OneWorker(one, name) for name in "ab"]

    round_of(one, workers, ([3],), ([1],))
    assert one.weights == pytest.approx([0.734])
    round_of(one, workers, ([0.34],), ([0.34],))  # both from .734 to .7

    assert one.weights == pytest.approx([0.57538])


@pytest.mark.parametrize(("momentum", "expected"), [(0.9, 0.1), (0.5, 0.5)])
def test_diloco_counts_what_workers_have_moved_once_in_the_end(momentum, expected):
    outer = build_policy(Options(name="diloco", outer_momentum=momentum)).server_optimizer(Sgd(lr=0.1))

    assert outer.lr == pytest.approx(expected)


@pytest.mark.parametrize("name", ["local_sgd", "diloco"])
def test_own_steps_follow_the_speed_where_they_are_dynamic(name):
    dynamic, fixed = (build_policy(Options(name=name, steps=8, dynamic=value)) for value in (True, False))

    assert [dynamic.local_steps(speed) for speed in (1.0, 0.5, 0.3125, 0.1, 0.001)] == [8, 4, 3, 1, 1]
    assert [fixed.local_steps(speed) for speed in (1.0, 0.1)] == [8, 8]


# options
def test_a_short_form_sets_the_option_that_the_policy_names():
    assert from_shorthand("ssp:5") == {"name": "ssp", "bound": "5"}
    assert build_policy(Options(**from_shorthand("ssp:5"))).bound == 5
    assert from_shorthand("bsp") == {"name": "bsp"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "ssp", "bound": -1}, r"policy\.bound: got -1; .*greater than or equal to 0"),
        ({"name": "bsp", "bound": 3}, r"policy\.bound: there is no such setting\. Known here: none"),
        ({"name": "shat", "variant": "ln"}, r"policy\.variant: got 'ln'; .*'log' or 'root'"),
        ({"name": "dssp", "lower": -1}, r"policy\.lower: got -1"),
        ({"name": "kbuffered", "k": 0}, r"policy\.k: got 0"),
        ({"name": "rennala", "b": 0}, r"policy\.b: got 0"),
        ({"name": "backup", "backups": -1}, r"policy\.backups: got -1"),
        ({"name": "delay_threshold", "threshold": 0}, r"policy\.threshold: got 0"),
        ({"name": "downpour", "push_every": 0}, r"policy\.push_every: got 0"),
        ({"name": "downpour", "pull_every": 0}, r"policy\.pull_every: got 0"),
        ({"name": "easgd", "tau": 0}, r"policy\.tau: got 0"),
        ({"name": "easgd", "beta": 1}, r"policy\.beta: got 1"),
        ({"name": "local_sgd", "steps": 0}, r"policy\.steps: got 0"),
        ({"name": "diloco", "outer_momentum": 1}, r"policy\.outer_momentum: got 1"),
        ({"name": "diloco", "outer_lr": 0}, r"policy\.outer_lr: got 0"),
        ({"name": "shat", "alpha": 1.5}, r"policy\.alpha: got 1\.5"),
        ({"name": "shat", "local_step": "adam"}, r"policy\.local_step: got 'adam'; .*'plain', 'optimizer' or 'none'"),
        ({"name": "ensemble", "local_step": "none"}, r"policy\.local_step: got 'none'; .*'plain' or 'optimizer'"),
        ({"name": "shat_root", "alpha_min": -0.5}, r"policy\.alpha_min: got -0\.5"),
        ({"name": "staleness_aware", "damp": "some"}, r"policy\.damp: got 'some'; .*'all' or 'outliers'"),
        ({"name": "dana", "momentum": 1.0}, r"policy\.momentum: got 1\.0"),
    ],
)
def test_settings_refuse_a_bad_option_by_its_key(given, said):
    with pytest.raises(ConfigError, match=said):
        load(overrides={"policy": given})


def test_dana_takes_the_runs_momentum_over_unless_it_has_its_own():
    """First push: v = g, u = m v + g."""
    optimizer = Sgd(lr=0.1, momentum=0.5, weight_decay=0.0)
    for options, m in ({}, 0.5), ({"momentum": 0.9}, 0.9):
        one = OneSlice("dana", workers="a", weights=(1.0,), optimizer=optimizer, **options)

        OneWorker(one, "a").push([1.0])

        assert one.weights == pytest.approx([1 - 0.1 * (1 + m)])


@pytest.mark.parametrize("name", POLICIES)
def test_the_error_about_overlap_names_the_policies_that_can(name):
    with pytest.raises(ConfigError) as error:
        load(overrides={"policy": "bsp", "overlap": True})

    named = str(error.value).partition("Use ")[2].replace(",", "").replace(" or ", " ").split(" leave")[0].split()
    assert (name in named) == build_policy(Options(name=name)).overlaps


# one contract for every policy in the folder
def advance(one, workers, rounds=1, gradient=(1.0,)):
    """Each worker pushes `rounds` times, as soon as it may; everybody is answered in the end."""
    goal = {worker: one.slice.clocks.entry(worker).clock + rounds for worker in workers}
    waiting, left = set(), dict(goal)
    while left:
        ready = [worker for worker in left if worker not in waiting]
        assert ready, f"{sorted(waiting)} wait for ever"
        for worker in ready:
            waiting = (waiting | {worker}) - who(one.push(worker, *gradient))
        left = {worker: clock for worker, clock in goal.items() if one.slice.clocks.entry(worker).clock < clock}
    assert not waiting


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_needs_no_options_and_says_what_each_is(name):
    policy = build_policy(Options(name=name))

    assert all(option.description for option in type(policy).model_fields.values())
    assert type(policy).__doc__
    assert policy.shorthand is None or policy.shorthand in {
        option.alias or key for key, option in type(policy).model_fields.items()
    }


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_goes_on_when_a_member_is_slow(name):
    one = OneSlice(name, workers="abc")

    for _ in range(30):
        for worker in "ab":
            if one.slice.clocks.entry(worker).clock < one.slice.clocks.entry("c").clock + 1:
                one.push(worker, 1.0)
        one.push("c", 1.0)

    assert {worker: one.slice.clocks.entry(worker).clock for worker in "abc"} == dict.fromkeys("abc", 30)
    assert one.ask("c", 30)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_frees_the_others_when_a_member_crashes(name):
    one = OneSlice(name, workers="abc")
    answered = who(one.push("a", 1.0)) | who(one.push("b", 1.0))

    answered |= who(one.sent(one.seats("a", "b")))

    assert answered == {"a", "b"}
    advance(one, "ab", 3)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_frees_the_last_one_when_all_others_go(name):
    one = OneSlice(name, workers="abcd")
    answered = set()
    while "a" in (answered := who(one.push("a", 1.0))) and one.slice.clocks.entry("a").clock < 40:
        pass  # as far as it may without the others

    answered |= who(one.sent(one.seats("a")))

    assert answered == {"a"}
    advance(one, "a", 5)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_takes_a_joiner_at_the_slowest_progress(name):
    one = OneSlice(name, workers="ab")
    advance(one, "ab", 5)

    one.seats("a", "b", c=Seat(1, handicap=5))
    advance(one, "cab")

    assert [one.slice.clocks.lead(worker) for worker in "abc"] == [0, 0, 0]
    advance(one, "abc", 5)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_lets_a_worker_leave_and_come_back_with_its_clock(name):
    one = OneSlice(name, workers="ab")
    one.push("a", 1.0)
    one.push("b", 1.0)
    one.seats("a")
    one.push("a", 1.0)

    one.seats("a", b=Seat(2, handicap=1))
    answered = who(one.push("b", 1.0, base=Base(1, one.slice.version))) | who(one.push("a", 1.0))

    assert answered == {"a", "b"}
    assert one.slice.clocks.entry("b").clock == 2


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_waits_who_may_go_on_under_any_policy(name):
    """Also where `waits_on` says that only some pushes can set others free."""
    one = OneSlice(name, workers="abcd", weights=(1.0,))
    rng = random.Random(name)

    for step in range(300):
        waiting = one.slice._waiting
        here = set(one.slice.clocks.members)
        if rng.random() < 0.05:
            here ^= {rng.choice("bcd")}
            level = one.slice.version + 2 if one.slice.policy.rounds else one.slice.clocks.slowest()
            handicap = {each: level - one.slice.clocks.entry(each).clock for each in here - {*one.slice.clocks.members}}
            one.seats(*here, **{each: Seat(step, count) for each, count in handicap.items()})
            for each in handicap:
                one.bases[each] = Base(1, one.slice.version)
        elif free := sorted(here - waiting.keys()):
            one.push(rng.choice(free), 1.0, time=float(step))
        may, clocks = one.slice.policy.may_proceed, one.slice.clocks
        assert not [each for each in one.slice._waiting if may(each, clocks)]
        running = [clocks.progress(each) for each in clocks.members if not clocks.is_done(each)]
        assert clocks.slowest() == min(running)


@pytest.mark.parametrize("name", POLICIES)
def test_a_repeat_changes_nothing_under_any_policy(name):
    one = OneSlice(name, workers="abc", weights=(1.0,))
    rng = random.Random(name)

    waiting = set()
    for step in range(40):
        worker = rng.choice(sorted(set("abc") - waiting))
        answered = {reply.worker: reply for reply in one.push(worker, 1.0, time=float(step))}
        waiting = (waiting | {worker}) - answered.keys()
        before = one.slice.state()

        again = one.push(worker, 99.0, clock=one.slice.clocks.entry(worker).clock, base=Base(1, 0), time=step + 0.5)

        after = one.slice.state()
        assert (after.table, list(after.weights)) == (before.table, list(before.weights))
        assert who(again) == {worker} & answered.keys()
        if again:
            assert replace(again[0], weights=None, pushed_at=0) == replace(answered[worker], weights=None, pushed_at=0)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_all_that_was_acknowledged_is_in_the_weights_in_the_end(name, seed):
    """Each push has its own element; at the end those have moved whose pushes were FOLDED or BUFFERED, and no others."""
    rng, each = random.Random(seed), 20
    one = OneSlice(name, workers="abc", weights=[0.0] * 3 * each)
    last, done, used = each, dict.fromkeys("abc", 0), set()
    waiting: set[str] = set()

    def settled(replies):
        for reply in replies:
            waiting.discard(reply.worker)
            if reply.outcome is not Outcome.DROPPED:
                used.add("abc".index(reply.worker) * each + reply.clock - 1)

    while min(done.values()) < last:
        if last == each and max(done.values()) == 12:
            last = max(done.values()) + 1
            settled(one.sent(one.seats(**{worker: Seat(1, 0, last=last) for worker in "abc"})))
        ready = [worker for worker in "abc" if worker not in waiting and done[worker] < last]
        assert ready, f"{sorted(waiting)} wait for ever"
        worker = rng.choice(ready)
        gradient = [0.0] * 3 * each
        gradient["abc".index(worker) * each + done[worker]] = 1.0
        done[worker] += 1
        waiting.add(worker)
        settled(one.push(worker, *gradient))

    assert not waiting
    assert {index for index, value in enumerate(one.weights) if value} == used


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_loses_what_it_buffered_when_the_last_member_goes(name):
    one = OneSlice(name, workers="abcde", weights=(0.0, 0.0))
    replies = one.push("a", 1.0, 0.0) + one.push("b", 0.0, 1.0)

    one.sent(one.seats())

    acknowledged = {reply.worker for reply in replies if reply.outcome is not Outcome.DROPPED}
    assert acknowledged <= {worker for worker, value in zip("ab", one.weights, strict=True) if value}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_goes_on_from_a_snapshot(name):
    one = OneSlice(name, workers="ab", weights=(1.0, 2.0))
    advance(one, "ab", 3, gradient=(1.0, 0.5))
    one.push("a", 1.0, 0.0)  # a sum may be open
    before, version = one.weights, one.slice.version

    one.restart()

    assert (one.weights, one.slice.version) == (before, version)
    advance(one, "ba", 6, gradient=(1.0, 0.5))
    assert one.weights != before


@pytest.mark.parametrize("name", ["kbuffered", "rennala"])
def test_a_sum_outlives_a_restart(name):
    one = OneSlice(name, **{"k" if name == "kbuffered" else "b": 3})
    one.push("a", 1.0)
    one.push("b", 2.0)

    one.restart()
    assert one.slice.clocks.buffered == 2
    one.push("a", 3.0)

    assert one.weights == pytest.approx([-0.2])


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_goes_on_where_all_push_empty_updates(name):
    one = OneSlice(name, workers="abc", weights=(3.0,))

    advance(one, "abc", 10, gradient=())

    assert one.weights == [3.0]
    assert one.slice.version == 10 or not one.slice.policy.rounds
    advance(one, "abc", 5)
    assert one.weights != [3.0]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_goes_on_beside_a_member_that_only_pushes_empty_updates(name):
    one = OneSlice(name, workers="abc")

    for _ in range(10):
        waiting = set("abc")
        for worker, gradient in (("a", (1.0,)), ("b", (1.0,)), ("c", ())):
            waiting -= who(one.push(worker, *gradient))
        assert not waiting


@dataclass
class Sender:
    """A worker with several slices: its clock, which of them it is still to reach, and which are to answer."""

    clock: int = 0
    last: int | None = None
    unsent: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)


@pytest.mark.parametrize("numbers", seeds(8, 100))
@pytest.mark.parametrize(("name", "options"), [(name, {}) for name in POLICIES if name != "backup"] + BACKUPS, ids=str)
def test_nobody_waits_for_ever_on_several_slices(name, options, numbers):
    """Pushes and views reach the slices in any order, members are lost, and the end is named: all come to it."""
    for seed in numbers:
        rng = random.Random(f"{name} {options} {seed}")
        slices = [OneSlice(name, workers="abcde", **options) for _ in range(rng.choice([2, 3]))]
        workers = {worker: Sender() for worker in "abcde"}
        speed = {worker: rng.choice([1, 1, 5]) for worker in workers}
        views: list[tuple[OneSlice, View]] = []
        crash = rng.choice([None, None, 30])

        def answered(index, replies, workers=workers):
            for reply in replies:
                if reply.worker in workers and reply.clock == workers[reply.worker].clock:
                    workers[reply.worker].open.discard(index)

        def publish(number, slices=slices, workers=workers, views=views):
            seats = {worker: Seat(1, 0, sender.last) for worker, sender in workers.items()}
            views.extend((one, View(number, seats)) for one in slices)

        for step in itertools.count():
            if step == 120:
                lasts = {worker: sender.clock + 1 for worker, sender in workers.items()}
                for worker, sender in workers.items():
                    sender.last = max(lasts.values()) if slices[0].slice.policy.rounds else lasts[worker]
                publish(4)
            if step == crash:
                del workers[rng.choice(sorted(workers))]
                publish(3)
            for sender in workers.values():
                if not sender.open and (sender.last is None or sender.clock < sender.last):
                    sender.clock += 1
                    sender.unsent = set(range(len(slices)))
                    sender.open = set(range(len(slices)))
            ready = [worker for worker, sender in workers.items() if sender.unsent]
            if not ready and not views:
                break
            if views and (not ready or rng.random() < 0.1):
                one, view = views.pop(0)
                answered(slices.index(one), one.sent(one.slice.view(view)))
                continue
            worker = rng.choices(ready, [speed[one] for one in ready])[0]
            index = rng.choice(sorted(workers[worker].unsent))
            workers[worker].unsent.discard(index)
            answered(index, slices[index].push(worker, 1.0, clock=workers[worker].clock, time=float(step)))
            clocks = slices[index].slice.clocks
            running = [clocks.progress(member) for member in clocks.members if not clocks.is_done(member)]
            assert clocks.slowest() == min(running, default=max(map(clocks.progress, clocks.members)))

        assert {worker: sender.open for worker, sender in workers.items()} == {worker: set() for worker in workers}
        assert all(sender.clock == sender.last for sender in workers.values()), seed


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_alpha_a_ratio(name):
    policy = build_policy(Options(name=name))

    for others, members in itertools.product((None, 0, 1, 7, 1000), (1, 2, 4, 16)):
        assert 0 <= policy.alpha(others, members) <= 1


@pytest.mark.parametrize("name", POLICIES)
def test_asking_whether_a_worker_may_proceed_changes_nothing(name):
    one = OneSlice(name, workers="ab")
    one.push("a", 1.0)
    before = one.slice.policy.state(), one.slice.policy.model_dump(), dict(vars(one.slice.policy))

    answers = {one.slice.policy.may_proceed("a", one.slice.clocks) for _ in range(5)}

    assert len(answers) == 1
    assert (one.slice.policy.state(), one.slice.policy.model_dump(), dict(vars(one.slice.policy))) == before


@pytest.mark.parametrize("name", POLICIES)
def test_every_policys_own_steps_lie_within_what_data_is_set_aside_for(name):
    policy = build_policy(Options(name=name))

    assert all(1 <= policy.local_steps(speed) <= policy.most_steps for speed in (1e-6, 0.3, 0.5, 1.0))
    assert policy.most_steps == 1 or policy.worker_optimizer(PLAIN) is not None


def test_the_cost_of_every_policys_bookkeeping_can_be_measured():
    rows = bookkeeping_rows(elements=1000, members=(1, 3), pushes=50)

    assert [(row.policy, row.members) for row in rows] == [(name, count) for name in POLICIES for count in (1, 3)]
    assert all(row.share > 0 for row in rows)


BSP = build_policy(Options(name="bsp"))
TO_SSP, TO_ASP = Switch(1, {"name": "ssp", "bound": 5}, 10), Switch(2, {"name": "asp"}, 20)


def test_the_runs_first_policy_or_that_of_a_change_that_was_made_before_is_in_force_from_the_start():
    for made, policy, number in ((None, BSP, 0), (TO_SSP, build_policy(Options(**TO_SSP.policy)), 1)):
        found = PolicyInForce(BSP, made)
        assert (found.policy, found.made, found.number) == (policy, made, number)


def test_a_change_is_taken_over_once_and_an_older_one_never():
    found = PolicyInForce(BSP)
    assert [found.adopt(change) for change in (TO_ASP, TO_ASP, TO_SSP)] == [True, False, False]

    assert (found.made, found.is_new(TO_SSP)) == (TO_ASP, False)


def test_weights_of_different_rounds_are_of_no_use_in_rounds_only():
    PolicyInForce(BSP).check_level([7, 7, 7])
    PolicyInForce(BSP, TO_ASP).check_level([6, 7])

    with pytest.raises(Behind, match="weights of rounds 6, 7"):
        PolicyInForce(BSP).check_level([7, 6, 7])

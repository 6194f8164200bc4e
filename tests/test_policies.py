"""Policies against the worked examples of the design (algorithms 2 and 3), and one contract for all in the folder."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_slice import PLAIN, OneSlice, who

from paceline.core import registry
from paceline.core.config import Options
from paceline.core.errors import ConfigError
from paceline.core.model_slice import ModelSlice
from paceline.core.policies.shat import Shat
from paceline.core.policy import PACKAGE, build_policy, from_shorthand
from paceline.core.values import Base, Outcome, Seat

POLICIES = registry.names(PACKAGE)


# BSP, 3.1
def test_bsp_folds_the_mean_of_a_round():
    one = OneSlice("bsp", weights=(1.0, 1.0))

    assert one.push("a", 1, 0) == []
    replies = one.push("b", 3, 2)

    assert who(replies) == {"a", "b"}
    assert one.weights == pytest.approx([0.8, 0.9])
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


def test_bsp_weighs_pushes_by_their_examples():
    one = OneSlice("bsp", weights=(0.0,))

    one.push("a", 1.0, examples=3)
    one.push("b", 5.0, examples=1)

    assert one.weights == pytest.approx([-0.1 * 2.0])


def test_bsp_adds_in_worker_order_whatever_the_order_of_arrival():
    values = {"worker-2": 1e8, "worker-3": -1e8, "worker-10": 1.0}
    results = set()
    for order in (("worker-2", "worker-3", "worker-10"), ("worker-10", "worker-3", "worker-2")):
        one = OneSlice("bsp", workers=tuple(values), weights=(0.0,))
        for worker in order:
            one.push(worker, values[worker])
        results.add(one.weights[0])

    assert [pytest.approx(-0.1 / 3)] == list(results)  # (1e8 - 1e8) + 1; in another order the 1 is lost


def test_bsp_counts_an_empty_update_for_the_barrier_and_weighs_it_nothing():
    one = OneSlice("bsp", weights=(0.0,))

    one.push("a")
    replies = one.push("b", 2.0)

    assert who(replies) == {"a", "b"}
    assert one.weights == pytest.approx([-0.2])


def test_a_bsp_round_of_empty_updates_closes_and_keeps_the_weights():
    one = OneSlice("bsp", weights=(3.0,))

    one.push("a")
    one.push("b")

    assert (one.slice.version, one.weights) == (1, [3.0])


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
    ("members", "log", "root"),
    [(2, -1.885, -0.414), (3, -0.365, 0.134), (4, 0.038, 0.333), (8, 0.450, 0.596), (16, 0.615, 0.733)],
)
def test_literal_alpha_of_equal_workers(members, log, root):
    for variant, expected in (("log", log), ("root", root)):
        policy = Shat(variant=variant, count="literal", alpha_min=0)

        assert policy.alpha(members - 1, members) == pytest.approx(max(expected, 0.0), abs=5e-4)


def test_alpha_of_a_straggler_by_both_counts():
    assert Shat(count="literal", alpha_min=0).alpha(9, 4) == pytest.approx(0.679401, abs=1e-6)
    assert Shat(count="inclusive").alpha(9, 4) == pytest.approx(0.711461, abs=1e-6)


def test_shat_mixes_as_in_the_worked_example():
    one = OneSlice("shat", workers="abcd", weights=(1.0, 2.0), count="literal", alpha_min=0)
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


@pytest.mark.parametrize(("others", "members", "expected"), [(0, 4, 0.25), (5, 1, 1.0), (None, 4, 1.0)])
def test_alpha_at_the_edges(others, members, expected):
    assert Shat(count="literal").alpha(others, members) == expected


def test_a_constant_alpha_takes_the_place_of_the_formula():
    policy = build_policy(Options(name="shat", alpha=0.5))

    assert policy.alpha(1000, 4) == 0.5


@given(st.integers(0, 10_000), st.integers(1, 1024), st.sampled_from(["log", "root"]), st.floats(0, 1))
def test_alpha_stays_within_its_bounds_and_grows_with_staleness(others, members, variant, smallest):
    policy = Shat(variant=variant, alpha_min=smallest)

    alpha = policy.alpha(others, members)

    assert smallest <= alpha <= 1
    assert policy.alpha(others + 1, members) >= alpha
    assert not math.isnan(alpha)


# SSP, 3.5
def test_ssp_parks_the_worker_that_is_ahead_until_the_slow_one_pushes():
    one = OneSlice("ssp", bound=1)

    assert who(one.push("a", 1.0)) == {"a"}
    assert one.push("a", 1.0) == []
    assert one.weights == pytest.approx([-0.2])

    assert who(one.push("b", 1.0)) == {"a", "b"}


def test_ssp_lets_the_parked_go_with_the_weights_of_that_moment():
    one = OneSlice("ssp", bound=0)
    one.push("a", 1.0)

    replies = {reply.worker: reply.weights.version for reply in one.push("b", 1.0)}

    assert replies == {"a": 2, "b": 2}


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


# options
def test_a_short_form_sets_the_option_that_the_policy_names():
    assert from_shorthand("ssp:5") == {"name": "ssp", "bound": "5"}
    assert build_policy(Options(**from_shorthand("ssp:5"))).bound == 5
    assert from_shorthand("bsp") == {"name": "bsp"}


def test_a_short_form_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"bsp takes no value after ':'"):
        from_shorthand("bsp:3")


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'shat'"):
        build_policy(Options(name="shatt"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "ssp", "boud": 3}, r"policy\.boud: there is no such setting\. Did you mean 'bound'\?"),
        ({"name": "ssp", "bound": -1}, r"policy\.bound: got -1; .*greater than or equal to 0"),
        ({"name": "bsp", "bound": 3}, r"policy\.bound: there is no such setting\. Known here: none"),
        ({"name": "shat", "variant": "ln"}, r"policy\.variant: got 'ln'; .*'log' or 'root'"),
    ],
)
def test_a_wrong_option_is_a_sentence_with_its_key(options, said):
    with pytest.raises(ConfigError, match=said):
        build_policy(Options(**options))


# one contract for every policy in the folder
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
    assert who(one.push("a", 1.0)) | who(one.push("b", 1.0)) >= {"a", "b"}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_takes_a_joiner_at_the_slowest_progress(name):
    one = OneSlice(name, workers="ab")
    for _ in range(5):
        one.push("a", 1.0)
        one.push("b", 1.0)

    one.seats("a", "b", c=Seat(1, handicap=5))
    answered = who(one.push("c", 1.0)) | who(one.push("a", 1.0)) | who(one.push("b", 1.0))

    assert answered == {"a", "b", "c"}
    assert [one.slice.clocks.lead(worker) for worker in "abc"] == [0, 0, 0]


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
def test_every_policy_goes_on_from_a_snapshot(name):
    one = OneSlice(name, workers="ab", weights=(1.0, 2.0))
    for _ in range(3):
        one.push("a", 1.0, 0.0)
        one.push("b", 0.0, 1.0)
    state = copy.deepcopy(one.slice.state())
    before = one.weights

    again = OneSlice(name, workers="ab", weights=(0.0, 0.0))
    again.slice = ModelSlice(2, build_policy(Options(name=name)), PLAIN, term=2)
    again.slice.restore(state)
    again.seats("a", "b")
    for worker in "ab":
        again.sent(again.slice.resume(worker, 1, 3)[1])
        again.bases[worker] = Base(2, again.slice.version)

    assert again.weights == before
    assert again.slice.version == one.slice.version
    assert who(again.push("a", 1.0, 0.0)) | who(again.push("b", 0.0, 1.0)) == {"a", "b"}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_alpha_a_ratio(name):
    policy = build_policy(Options(name=name))

    assert all(0 <= policy.alpha(others, n) <= 1 for others in (None, 0, 1, 7, 1000) for n in (1, 2, 4, 16))


@pytest.mark.parametrize("name", POLICIES)
def test_asking_whether_a_worker_may_proceed_changes_nothing(name):
    one = OneSlice(name, workers="ab")
    one.push("a", 1.0)
    before = one.slice.policy.state()

    answers = {one.slice.policy.may_proceed("a", one.slice.clocks) for _ in range(5)}

    assert len(answers) == 1
    assert one.slice.policy.state() == before

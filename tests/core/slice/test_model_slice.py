"""The slice as a state machine: repeats, gaps, fences, early pushes, last clocks, snapshots, restarts, pins."""

import inspect
import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import BadPush, ConfigError, Fenced, Gap, NotYet, VersionGone
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.builtin.asp import Asp
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options
from paceline.core.slice.admission import Admission
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.state import Phase, SliceState
from paceline.core.slice.versions import Versions
from paceline.core.values import Base, Outcome, Push, Reply, Seat, Switch, Verdict, View
from tests.support.one_slice import PLAIN, OneSlice, who
from tests.support.slice_parts import a_push, clocks_with, half_of


def restarted(one: OneSlice, *, term: int = 2) -> OneSlice:
    """The slice after a kill -9, back from what a snapshot taken now holds; nobody has resumed yet."""
    state = one.slice.state()
    policy = one.slice.policy
    one.slice = ModelSlice(one.slice.length, policy, one.slice.optimizer, term)
    one.slice.restore(state)
    return one


# repeats and gaps
def test_a_repeat_is_answered_and_not_folded():
    one = OneSlice("asp", weights=(1.0,))
    (first,) = one.push("a", 1.0)
    one.push("b", 1.0)

    (again,) = one.push("a", 1.0, clock=1)

    assert one.weights == pytest.approx([0.8])
    assert (again.clock, again.outcome, again.staleness, again.lr) == (1, first.outcome, first.staleness, first.lr)
    assert again.weights.version == 2


def test_a_repeat_of_a_waiting_push_takes_its_place_but_a_late_duplicate_of_an_older_clock_does_not():
    one = OneSlice("bsp")
    one.push("a", 1.0)

    assert one.push("a", 1.0, clock=1) == []
    replies = one.push("b", 1.0)

    assert sorted(reply.worker for reply in replies) == ["a", "b"]
    assert one.weights == pytest.approx([-0.1])
    one.push("a", 1.0)

    (duplicate,) = one.push("a", 1.0, clock=1)
    replies = one.push("b", 1.0)

    assert duplicate.clock == 1
    assert {reply.worker: reply.clock for reply in replies} == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda one: one.ask("a", 1), Gap, r"Clock 1 of a never came; the slice has its clock 0. Send the push again"),
        (lambda one: one.push("a", 1.0, view=2), NotYet, r"at view 1; the push needs view 2"),
        (lambda one: one.push("a", 1.0, incarnation=2), NotYet, r"Incarnation 2 of a is not in view 1 yet"),
        (lambda one: one.ask("c", 1), NotYet, r"which c is not in yet"),
        (lambda one: one.push("a", 1.0, 2.0, 3.0), BadPush, r"a pushed 3 values to a slice of 1"),
        (lambda one: one.push("a", 1.0, base=Base(1, 1)), BadPush, r"claims weights of"),
    ],
    ids=["never came", "later view", "newer incarnation", "joiner before its view", "other length", "future base"],
)
def test_a_call_that_comes_too_early_or_does_not_fit_is_told_which(call, error, told):
    with pytest.raises(error, match=told):
        call(OneSlice("asp"))


def test_asking_answers_a_push_whose_reply_was_lost():
    one = OneSlice("asp")
    one.push("a", 1.0)

    assert [reply.clock for reply in one.ask("a", 1)] == [1]


def test_a_clock_that_skips_one_is_a_gap_and_touches_nothing():
    one = OneSlice("asp")

    with pytest.raises(Gap, match=r"a pushed clock 2, expected 1. Say Resume first"):
        one.push("a", 1.0, clock=2)

    assert (one.slice.version, one.slice.clocks.entry("a").clock, one.weights) == (0, 0, [0.0])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=60))
def test_whatever_is_repeated_every_clock_folds_once(steps):
    one = OneSlice("asp", workers="abc", weights=(0.0, 0.0, 0.0), optimizer=Sgd(lr=0.5, momentum=0.0, weight_decay=0.0))

    for worker, back in steps:
        clock = max(1, one.slice.clocks.entry(worker).clock + 1 - back)
        one.push(worker, *(float(worker == name) for name in "abc"), clock=clock)

    assert one.weights == [-0.5 * one.slice.clocks.entry(worker).clock for worker in "abc"]


# fences and views
def test_an_older_incarnation_is_fenced():
    one = OneSlice("asp")
    one.seats("b", a=Seat(2, 0))

    with pytest.raises(Fenced, match=r"a \(incarnation 1\) does not count any more: incarnation 2 has its seat"):
        one.push("a", 1.0, incarnation=1)
    one.slice.resume("a", 3)
    with pytest.raises(Fenced, match=r"Join again"):
        one.slice.resume("a", 1)


def test_an_expelled_worker_is_fenced():
    one = OneSlice("asp")
    one.seats("b")

    for call in (lambda: one.push("a", 1.0), lambda: one.ask("a", 1)):
        with pytest.raises(Fenced, match=r"it was expelled"):
            call()


def test_an_older_view_changes_nothing():
    one = OneSlice("asp")
    one.seats("a")

    assert one.slice.view(View(1, {})) == []
    assert list(one.slice.clocks.members) == ["a"]


def test_a_successor_is_not_answered_in_its_predecessors_place():
    one = OneSlice("ssp", bound=0)
    one.push("a", 1.0)
    one.seats("b", a=Seat(2, 0))

    replies = one.push("b", 1.0)

    assert who(replies) == {"b"}
    assert [reply.clock for reply in one.ask("a", 1, incarnation=2)] == [1]


def test_a_worker_that_catches_up_on_older_clocks_waits_for_nobody():
    one = OneSlice("bsp")
    for _ in range(5):
        one.push("a", 1.0)
        one.push("b", 1.0)
    # another slice lost a's clocks from 4 on: 3 + 2 is level there, 5 + 2 ahead here
    one.seats("b", a=Seat(2, handicap=2))

    (reply,) = one.push("a", 1.0, clock=4, incarnation=2, base=Base(1, 5))

    assert (reply.clock, one.slice.version) == (4, 5)


# refused pushes
@pytest.mark.parametrize("term", [1, 3])
def test_a_push_of_another_term_is_folded_as_if_computed_on_todays_weights(term: int):
    one = restarted(OneSlice("asp", weights=(5.0,)))
    one.seats("a", "b")

    (reply,) = one.push("a", 1.0, base=Base(term, 70))

    assert (reply.outcome, reply.staleness, reply.term, reply.clock) == (Outcome.FOLDED, 0, 2, 1)
    assert one.weights == pytest.approx([4.9])


def test_a_worker_waits_with_its_next_push_until_the_round_that_an_older_term_had_closed_is_closed_again():
    one = restarted(OneSlice("bsp"))
    one.seats("a", "b")
    one.push("a", 1.0, base=Base(1, 0))

    with pytest.raises(NotYet, match=r"a pushed clock 2; its clock 1 still waits here for the other workers"):
        one.push("a", 1.0, base=Base(1, 1))
    one.push("b", 1.0, base=Base(1, 0))

    one.push("a", 1.0, base=Base(1, 1))
    assert one.slice.clocks.entry("a").outcome is Outcome.BUFFERED


def test_with_backups_a_push_on_weights_of_an_older_term_is_answered_at_once():
    """It may have been late on another slice, which waits for this worker's next push."""
    one = restarted(OneSlice("backup", workers="abcd", backups=1))
    one.seats("a", "b", "c", "d")

    (reply,) = one.push("a", 1.0, base=Base(1, 7))
    (again,) = one.push("a", 1.0, base=Base(1, 8))
    assert one.push("b", 1.0, base=Base(2, 0)) == []

    assert [each.outcome for each in (reply, again)] == [Outcome.BUFFERED] * 2
    assert one.slice.version == 0
    assert who(one.push("c", 1.0, base=Base(2, 0))) == {"b", "c"}
    assert one.weights == pytest.approx([-0.1])


def test_a_clock_after_the_last_one_is_refused():
    one = OneSlice("asp")
    one.seats("b", a=Seat(1, 0, last=1))
    (reply,) = one.push("a", 1.0)

    assert reply.stop
    with pytest.raises(BadPush, match=r"its last one is 1: the run is stopping"):
        one.push("a", 1.0)


def test_only_the_last_clock_is_told_to_stop():
    one = OneSlice("bsp")
    one.seats(a=Seat(1, 0, last=2), b=Seat(1, 0, last=2))

    stops = []
    for _ in range(2):
        one.push("a", 1.0)
        stops.append([reply.stop for reply in one.push("b", 1.0)])

    assert stops == [[False, False], [True, True]]


def test_a_slice_that_goes_back_closes_the_rounds_in_which_no_member_takes_part():
    one = OneSlice("bsp")
    before = one.slice.state()
    again = one._new_slice(1, 2)
    again.view(View(2, {"c": Seat(3, handicap=2)}))

    again.restore(before)

    assert (again.version, again.clocks.entry("c").incarnation) == (2, 3)


# rounds that stay open
def test_rounds_before_a_held_one_close_and_it_does_when_a_later_one_is_held_instead_or_none():
    one = OneSlice("bsp")
    one.slice.keep_rounds_open(2)
    one.push("a", 1.0)
    assert who(one.push("b", 1.0)) == {"a", "b"}

    for later in (3, None):
        one.push("a", 1.0)
        assert one.push("b", 1.0) == []

        assert who(one.sent(one.slice.keep_rounds_open(later))) == {"a", "b"}


def test_a_joiner_counts_from_the_round_of_its_handicap_on():
    one = OneSlice("bsp")
    one.seats("a", "b", c=Seat(1, handicap=2))

    for _ in range(2):
        one.push("a", 1.0)
        assert who(one.push("b", 1.0)) >= {"a", "b"}
    one.push("a", 1.0)
    assert one.push("b", 1.0) == []

    assert who(one.push("c", 1.0, base=Base(1, 2))) == {"a", "b", "c"}


# weights
def test_first_weights_of_the_slices_length_are_taken_once():
    model_slice = ModelSlice(2, build_policy(Options(name="asp")), PLAIN)
    with pytest.raises(BadPush, match=r"first weights have 3 values, the slice holds 2"):
        model_slice.initialise(np.zeros(3, np.float32), b"three")
    assert model_slice.pull() is None

    model_slice.initialise(np.ones(2, np.float32), b"one")
    model_slice.initialise(np.ones(2, np.float32), b"one")

    with pytest.raises(BadPush, match=r"other first weights already: use the same seed and model"):
        model_slice.initialise(np.zeros(2, np.float32), b"two")


def test_a_slice_without_weights_takes_no_push():
    one = OneSlice("asp")
    one.slice = ModelSlice(1, one.slice.policy, PLAIN)
    one.slice.view(View(1, {"a": Seat(1, 0)}))

    with pytest.raises(NotYet, match=r"The slice is empty"):
        one.push("a", 1.0)


def test_an_empty_slice_is_legal():
    one = OneSlice("bsp", weights=())

    one.push("a")
    assert who(one.push("b")) == {"a", "b"}
    assert one.slice.version == 1


def test_rounds_keep_the_previous_version_and_one_that_is_gone_is_said_to_be():
    one = OneSlice("bsp")
    one.push("a", 1.0)
    one.push("b", 1.0)

    previous = one.slice.pull(0)

    assert (previous.version, list(previous.values)) == (0, [0.0])
    assert one.slice.pull(2) is None
    one.slice.release(previous)
    one.push("a", 1.0)
    one.push("b", 1.0)
    with pytest.raises(VersionGone, match=r"Version 0 is no longer kept; the slice is at 2"):
        one.slice.pull(0)


@given(st.booleans(), st.lists(st.sampled_from(["pin", "pin_previous", "release", "fold"]), max_size=60))
def test_a_pinned_version_never_changes(keep_previous, actions):
    versions = Versions(np.zeros(3, np.float32), 0, keep_previous)
    pinned = []

    for action in actions:
        if action == "fold":
            target = versions.target()
            np.add(versions.current.values, 1, out=target)
            versions.publish(target, versions.current.version + 1)
        elif action == "release" and pinned:
            versions.release(pinned.pop(0))
        elif action.startswith("pin"):
            back = action == "pin_previous" and versions.previous is not None
            found = versions.pin(versions.current.version - 1 if back else None)
            assert found is not None
            pinned.append(found)
        assert all((look.values == look.version).all() for look in [*pinned, versions.current])


def test_arrays_of_old_versions_are_used_again():
    versions = Versions(np.zeros(3, np.float32), 0, keep_previous=True)
    arrays = set()

    for version in range(1, 20):
        look = versions.pin()
        assert look is not None
        target = versions.target()
        arrays.add(id(target))
        versions.publish(target, version)
        versions.release(look)

    assert len(arrays) <= 3
    assert not versions.crowded


def test_readers_of_two_versions_make_the_slice_crowded():
    one = OneSlice("asp")
    old = one.slice.pull()
    one.push("a", 1.0)
    assert not one.slice.crowded

    one.slice.pull()
    assert one.slice.crowded

    one.slice.release(old)
    assert not one.slice.crowded


def test_the_version_of_a_snapshot_does_not_make_the_slice_crowded():
    """Its array is in the memory formula, and it is written for seconds."""
    one = OneSlice("asp")
    taken = one.slice.snapshot()
    one.push("a", 1.0)
    one.slice.pull()
    assert not one.slice.crowded

    one.push("b", 1.0)
    one.slice.pull()
    assert one.slice.crowded
    assert taken.state.weights.tolist() == [0.0]


def test_memory_for_a_snapshot_and_for_folds_beside_it_is_made_once():
    one = OneSlice("asp", optimizer=Sgd())
    assert one.slice.lacks == 3  # the momentum's copy, the version that comes next, and one for a reader

    one.slice.supply(np.zeros(1, np.float32) for _ in range(3))

    assert one.slice.lacks == 0
    for _ in range(3):
        taken = one.slice.snapshot()
        one.push("a", 1.0)
        one.slice.supply(taken.copies.made.values())
        one.slice.release(taken.weights)
        assert one.slice.lacks == 0


# snapshots and restarts
def test_a_snapshot_is_plain_json_beside_its_arrays():
    one = OneSlice("shat", optimizer=Sgd())
    one.push("a", 1.0)

    state = one.slice.state()

    assert json.loads(json.dumps(state.table)) == state.table
    assert len(state.slots) == 1


def test_the_table_of_a_snapshot_has_these_facts_in_this_order():
    one = OneSlice("kbuffered", k=3)
    one.push("a", 1.0)

    facts = ["version", "pushes", "steps", "examples", "clocks", "policy", "rate", "switch", "rounds", "gathered"]
    assert list(one.slice.state().table) == facts


def test_a_snapshot_does_not_change_with_the_slice():
    one = OneSlice("asp", optimizer=Sgd())
    state = one.slice.state()
    clocks = json.loads(json.dumps(state.table["clocks"]))

    one.push("a", 1.0)

    assert (list(state.weights), list(state.slots[0]), state.table["clocks"]) == ([0.0], [0.0], clocks)


def test_the_pushes_of_an_open_round_are_not_in_a_snapshot():
    one = OneSlice("bsp")
    one.push("a", 1.0)
    one.push("b", 1.0)
    one.push("a", 1.0, examples=7)

    table = one.slice.state().table

    clocks = {worker: (entry["clock"], entry["examples"]) for worker, entry in table["clocks"].items()}
    assert clocks == {"a": (1, 1), "b": (1, 1)}
    assert (table["version"], table["pushes"], table["examples"]) == (1, 2, 2)


def test_a_restarted_slice_knows_the_examples_of_its_last_round():
    one = OneSlice("bsp")
    for examples in (1, 7):
        one.push("a", 1.0, examples=examples)
        one.push("b", 1.0, examples=examples)
    one.push("a", 1.0, examples=100)

    again = restarted(one)

    assert one.slice.clocks.round_examples == again.slice.clocks.round_examples == 14
    again.seats("a", "b")
    for worker in "ab":
        again.bases[worker] = Base(2, 2)
        again.push(worker, 1.0, clock=3, examples=3)
    assert again.slice.clocks.round_examples == 6


def test_a_push_of_an_open_round_folds_once_after_a_restart():
    one = OneSlice("bsp")
    one.push("a", 1.0)
    one = restarted(one)
    one.seats("a", "b")
    for worker in "ab":
        one.bases[worker] = Base(2, 0)

    one.push("a", 1.0, clock=1)
    one.push("b", 3.0, clock=1)

    assert one.weights == pytest.approx([-0.2])


def test_a_restarted_slice_serves_as_soon_as_it_knows_its_members():
    one = restarted(OneSlice("asp"))
    with pytest.raises(NotYet, match=r"at view 0"):
        one.ask("a", 1)
    one.seats("a", "b")

    assert [reply.clock for reply in one.push("a", 1.0)] == [1]


def test_a_restarted_slice_has_the_clocks_of_its_snapshot_and_takes_again_what_it_lacks():
    one = OneSlice("asp")
    one.push("a", 1.0)
    state = one.slice.state()
    one.push("a", 2.0)
    one.push("a", 3.0)
    one.slice = ModelSlice(1, one.slice.policy, PLAIN, term=2)
    one.slice.restore(state)
    one.seats("a")

    standing = one.slice.resume("a", 1)
    assert (standing.term, standing.clock, standing.durable) == (2, 1, 1)
    with pytest.raises(Gap, match="expected 2"):
        one.push("a", 4.0, clock=4)
    replies = [one.push("a", float(clock), clock=clock, base=Base(1, clock - 1))[0] for clock in (2, 3, 4)]

    assert [(reply.clock, reply.outcome) for reply in replies] == [(clock, Outcome.FOLDED) for clock in (2, 3, 4)]
    assert one.weights == pytest.approx([-1.0])


@pytest.mark.parametrize("who", ["a", "nobody"])
def test_resume_moves_no_clock_and_makes_no_entry(who: str):
    one = OneSlice("asp")
    one.push("a", 1.0)
    before = one.slice.state().table

    for _ in range(3):
        one.slice.resume(who, 1)

    assert one.slice.state().table == before


@pytest.mark.parametrize("policy", ["bsp", "backup", "rennala"])
def test_what_is_sent_again_counts_though_the_versions_of_its_term_are_gone(policy: str):
    one = restarted(OneSlice(policy, workers="a"))
    one.seats("a")
    one.push("a", 1.0, base=Base(1, 40))

    assert one.slice.clocks.entry("a").outcome is Outcome.BUFFERED


def test_a_reply_says_what_no_crash_can_lose_any_more():
    one = OneSlice("asp")
    one.push("a", 1.0)
    table = one.slice.state().table
    (before,) = one.push("a", 1.0)
    one.slice.note_durable(table)

    assert before.durable == 0
    assert [reply.durable for reply in one.push("a", 1.0)] == [1]


def test_a_repeat_before_the_last_clock_is_not_told_to_stop():
    one = OneSlice("asp")
    one.seats("b", a=Seat(1, 0, last=2))
    one.push("a", 1.0)
    one.push("a", 1.0)

    assert [reply.stop for clock in (1, 2) for reply in one.ask("a", clock)] == [False, True]


def test_a_clock_that_only_the_snapshot_knows_is_a_repeat():
    one = OneSlice("asp")
    one.push("a", 1.0)
    one = restarted(one)
    one.seats("a")

    standing = one.slice.resume("a", 1)
    assert one.slice.clocks.entry("a").seen is None
    (reply,) = one.push("a", 1.0, clock=1, base=Base(1, 0))

    assert standing.clock == 1
    assert (reply.clock, reply.outcome) == (1, Outcome.FOLDED)
    assert one.weights == pytest.approx([-0.1])


# the order in which a round is summed
def test_the_sum_of_a_round_waits_for_the_next_worker_in_order():
    one = OneSlice("bsp", workers="abc")

    one.push("c", 1.0)
    assert (one.slice.next_in_order(), one.slice.needs("c")) == ("a", True)
    one.push("a", 1.0)
    assert (one.slice.next_in_order(), one.slice.needs("a")) == ("b", False)
    one.push("b", 1.0)

    assert not one.slice.needs("c")


def test_policies_without_rounds_keep_no_pushes():
    one = OneSlice("asp")
    one.push("a", 1.0)

    assert one.slice.next_in_order() is None
    assert not one.slice.needs("a")


# a change of policy
def changing(
    one: OneSlice, policy: str, version: int = 10, number: int = 1, made: Switch | None = None, **switch_clocks: int
) -> tuple[Switch, list[Reply]]:
    """The view that names the change: these are the members' switch clocks."""
    known, switch = one.slice.clocks.view, Switch(number, {"name": policy}, version)
    seats = {worker: replace(known.seats[worker], switch_clock=switch_clocks.get(worker)) for worker in known.seats}
    return switch, one.sent(one.slice.view(View(known.number + 1, seats, 0, switch, made)))


def test_a_worker_at_its_hold_waits_until_all_are_and_its_reply_names_the_new_policy():
    one = OneSlice("asp")
    switch, replies = changing(one, "ssp", a=1, b=2)
    assert replies == one.push("a", 1.0) == []
    assert [reply.switch for reply in one.push("b", 1.0)] == [None]

    replies = one.push("b", 1.0)

    assert who(replies) == {"a", "b"}
    assert all(reply.switch == switch and reply.weights.version == 10 for reply in replies)
    assert one.slice.policy == build_policy(Options(name="ssp"))
    assert {one.slice.clocks.progress(worker) for worker in "ab"} == {10}
    assert {one.slice.clocks.entry(worker).seen for worker in "ab"} == {None}


def test_nobody_pushes_beyond_its_switch_clock():
    one = OneSlice("asp")
    changing(one, "ssp", a=1, b=1)
    one.push("a", 1.0)

    with pytest.raises(NotYet, match="beyond its switch clock 1; the policy changes once all"):
        one.push("a", 1.0)

    assert one.slice.clocks.entry("a").clock == 1


def test_what_is_buffered_is_folded_before_the_policy_changes():
    one = OneSlice("kbuffered", k=10)
    one.push("a", 1.0)
    changing(one, "bsp", a=2, b=1)
    one.push("a", 2.0)
    one.push("b", 6.0)

    assert one.weights == pytest.approx([-0.3])  # the mean of 1, 2 and 6 at rate 0.1
    assert one.slice.version == 10


@pytest.mark.parametrize(("policy", "kept"), [("backup", [1.0]), ("diloco", [0.0]), ("local_sgd", None)])
def test_what_the_servers_optimizer_remembers_begins_anew_where_it_would_mean_something_else(
    policy: str, kept: list[float] | None
):
    one = OneSlice("bsp", optimizer=Sgd(momentum=0.9))
    one.push("a", 1.0)
    one.push("b", 1.0)
    changing(one, policy, a=1, b=1)

    slots = one.slice.state().slots

    assert [slot.tolist() for slot in slots] == ([] if kept is None else [kept])


def test_rounds_are_whole_from_the_version_of_the_change_on():
    one = OneSlice("asp")
    one.push("a", 1.0)
    changing(one, "bsp", version=7, a=2, b=1)
    one.push("a", 1.0)
    one.push("b", 1.0)
    assert one.push("a", 1.0) == []

    replies = one.push("b", 3.0)

    assert {reply.outcome for reply in replies} == {Outcome.BUFFERED}
    assert (who(replies), one.slice.version) == ({"a", "b"}, 8)
    assert one.weights == pytest.approx([-0.5])
    assert one.slice.pull(7) is not None


def test_a_round_that_stays_open_is_folded_before_the_policy_changes():
    one = OneSlice("bsp")
    one.slice.keep_rounds_open(1)
    changing(one, "asp", a=1, b=1)
    one.push("a", 1.0)
    assert one.push("b", 3.0) == []
    assert one.slice.switch is None

    replies = one.sent(one.slice.keep_rounds_open(None))

    assert one.weights == pytest.approx([-0.2])
    assert who(replies) == {"a", "b"}
    assert one.slice.version == 10


def test_a_member_that_goes_sets_those_who_wait_for_it_free_under_the_new_policy():
    one = OneSlice("bsp")
    switch, _ = changing(one, "asp", a=1, b=1)
    one.push("a", 1.0)

    replies = one.slice.view(replace(one.slice.clocks.view, number=3, seats={"a": one.slice.clocks.view.seats["a"]}))

    assert [(reply.worker, reply.switch) for reply in replies] == [("a", switch)]
    assert one.weights == pytest.approx([-0.1])


@pytest.mark.parametrize("members", ["", "ab"])
def test_a_view_that_comes_when_all_are_at_their_holds_changes_the_policy_at_once(members):
    one = OneSlice("asp", workers=members)
    for member in members:
        one.push(member, 1.0)

    switch, _ = changing(one, "ssp", **dict.fromkeys(members, 1))

    assert (one.slice.switch, one.slice.version) == (switch, 10)
    assert one.slice.policy == build_policy(Options(name="ssp"))


def test_a_later_view_does_not_hold_anybody_again():
    one = OneSlice("asp", workers=("a",))
    switch, _ = changing(one, "ssp", a=1)
    one.push("a", 1.0)

    one.slice.view(replace(one.slice.clocks.view, number=3, seats={"a": Seat(1, 0, switch_clock=1)}))

    assert one.slice.clocks.view.seats["a"] == Seat(1, switch.version - 1)
    assert who(one.push("a", 1.0)) == {"a"}


def test_a_worker_that_catches_up_is_not_told_of_the_change():
    one = OneSlice("asp", workers=("a",))
    switch, _ = changing(one, "ssp", a=3)
    for _ in range(3):
        one.push("a", 1.0)

    assert [reply.switch for reply in one.ask("a", 2)] == [None]
    assert [reply.switch for reply in one.ask("a", 3)] == [switch]


def back(state: SliceState, policy: str, *workers: str, **options: object) -> OneSlice:
    """A slice of a config with this policy that is back from a snapshot."""
    one = OneSlice(policy, workers, **options)
    one.slice = ModelSlice(1, build_policy(Options(name=policy, **options)), PLAIN, 2)
    one.slice.restore(state)
    return one


def test_a_slice_that_comes_back_from_before_a_change_makes_it_with_what_the_snapshot_had_of_a_sum():
    one = OneSlice("kbuffered", k=10)
    one.push("a", 1.0)
    one.push("b", 3.0)
    state, switch = one.slice.state(), Switch(1, {"name": "bsp"}, 20)
    one = back(state, "kbuffered", k=10)

    one.slice.view(View(5, {"a": Seat(1, 18), "b": Seat(1, 18)}, 0, switch, switch))

    assert one.weights == pytest.approx([-0.2])
    assert (one.slice.switch, one.slice.version, one.slice.phase) == (switch, 20, Phase.SERVING)


def test_a_slice_that_missed_a_change_makes_it_before_the_next_one():
    made, state = Switch(1, {"name": "kbuffered", "k": 5}, 20), OneSlice("asp").slice.state()
    one = back(state, "asp")
    switch = Switch(2, {"name": "bsp"}, 40)

    one.slice.view(View(5, {"a": Seat(1, 18, switch_clock=4), "b": Seat(1, 18, switch_clock=3)}, 0, switch, made))
    assert one.slice.policy == build_policy(Options(**made.policy))
    assert one.slice.version == 20
    replies = [one.push("b", 1.0, base=Base(1, 0)) for _ in range(3)]
    assert [reply.outcome for (reply,) in replies[:2]] == [Outcome.DROPPED] * 2, "these are of the policy before"
    replies = [one.push("a", 1.0, base=Base(2, 20)) for _ in range(4)][-1]

    assert all((reply.switch, reply.outcome) == (switch, Outcome.BUFFERED) for reply in replies)
    assert len(replies) == 2
    assert one.weights == pytest.approx([-0.1])
    assert {one.slice.clocks.progress(worker) for worker in "ab"} == {40} == {one.slice.version}


def test_a_snapshot_keeps_the_policy_that_a_change_began():
    one = OneSlice("asp", workers=("a",))
    switch, _ = changing(one, "bsp", a=1)
    one.push("a", 1.0)

    state = one.slice.state()
    again = back(replace(state, table=json.loads(json.dumps(state.table))), "asp")

    assert again.slice.switch == switch
    assert again.slice.policy == build_policy(Options(name="bsp"))


# slices that close with different workers
def test_a_version_that_everybody_has_pushed_on_closes_though_most_came_too_late():
    one = OneSlice("backup", "abcd", backups=1)
    for worker in "abc":
        one.push(worker, 1.0)
    assert one.slice.version == 1
    for worker in "cd":
        assert who(one.push(worker, 9.0, base=Base(1, 0))) == {worker}
    assert one.push("a", 1.0) == []
    assert one.slice.version == 1

    replies = one.push("b", 9.0, base=Base(1, 0))

    assert who(replies) == {"a", "b"}, "c and d may wait on a slice that waits for a and b"
    assert one.weights == pytest.approx([-0.2])
    assert one.slice.version == 2


TERM = 2


def admission(**seats: Seat) -> Admission:
    """Of a slice of two values in its second life, at version 0."""
    return Admission(TERM, 2, clocks_with(**seats), lambda push: None)


class Forgetful(Asp):
    """A user's, which says that pushes wait, and not that they are summed."""

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return Verdict(Outcome.BUFFERED)


class Gathering(Forgetful):
    gathers: ClassVar[bool] = True


def test_a_push_that_should_wait_in_a_sum_that_a_policy_does_not_have_is_an_error_and_not_lost():
    line = inspect.getsourcelines(Forgetful.admit)[1]
    told = rf"test_model_slice.py, line {line}: admit\(\) of policy Forgetful says BUFFERED, .* Set `gathers = True`"
    one = admission(a=Seat(1, 0))
    push = a_push(base=Base(TERM, 0))

    with pytest.raises(ConfigError, match=told):
        one.verdict(push, Forgetful(), None)

    assert one.verdict(push, Gathering(), None).outcome is Outcome.BUFFERED


def test_a_slice_counts_no_push_that_it_could_not_keep():
    one = ModelSlice(2, Forgetful(), PLAIN)
    one.initialise(np.zeros(2, np.float32), b"")
    one.view(View(1, {"a": Seat(1, 0)}))

    with pytest.raises(ConfigError, match="BUFFERED"):
        one.push(a_push())

    assert (one.clocks.pushes, one.clocks.entry("a").clock) == (0, 0)


def test_a_push_that_an_earlier_term_has_dropped_is_dropped_again_and_counts_as_before():
    one = OneSlice("asp", "a", (1.0,))

    (reply,) = one.push("a", dropped=True, examples=8, base=Base(0, 0))

    assert (reply.outcome, reply.reason, reply.clock) == (Outcome.DROPPED, "dropped_before", 1)
    assert (one.slice.clocks.examples, one.weights) == (8, [1.0])


def test_pushes_from_before_a_change_of_policy_count_and_are_not_used():
    policy = half_of("asp").policy
    one = admission(a=Seat(1, 7))
    made = Switch(1, {"name": "asp"}, 9)

    assert one.verdict(a_push(clock=2), policy, made) == (Outcome.DROPPED, "old_policy")
    assert one.verdict(a_push(clock=3), policy, made) == (Outcome.FOLDED, "")

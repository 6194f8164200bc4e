"""What a snapshot of a slice holds, and what a slice does that comes back from one."""

import json

from paceline.core.slice.recovery import Recovery
from paceline.core.slice.server_half import ServerHalf
from paceline.core.sync.clocks import Clocks
from paceline.core.values import Outcome, Seat, Switch, View
from tests.support.slice_parts import a_push, clocks_with, counted, dense_folding, half_of

A = Seat(1, 0)


def recovery_of(clocks: Clocks, half: ServerHalf) -> Recovery:
    return Recovery(clocks, half, dense_folding(clocks, half))


def test_a_slice_has_recovered_once_every_member_of_a_view_has_said_where_it_stands():
    clocks = Clocks()
    recovery = recovery_of(clocks, half_of("asp"))
    recovery.resumed("a", 0)
    assert not recovery.is_complete, "nobody has told it who the members are"
    clocks.take_view(View(1, {"a": A, "b": A}))
    assert not recovery.is_complete

    recovery.resumed("b", 0)

    assert recovery.is_complete


def test_clocks_that_were_answered_before_the_restart_are_not_asked_for_again():
    clocks = clocks_with(a=A)
    recovery = recovery_of(clocks, half_of("asp"))

    recovery.resumed("a", 7)

    assert clocks.entry("a").clock == 7


def test_rounds_go_on_at_the_slowest_member_and_no_last_push_counts_any_more():
    clocks = clocks_with(a=A, b=A)
    half = half_of("bsp")
    folding = dense_folding(clocks, half)
    recovery = Recovery(clocks, half, folding)
    counted(clocks, a_push("a"))
    recovery.resumed("a", 5)
    recovery.resumed("b", 4)

    recovery.end()

    assert (clocks.version, folding.current().version, clocks.entry("a").seen) == (4, 4, None)


def test_a_push_whose_round_is_open_is_not_in_a_snapshot():
    clocks, half = clocks_with(a=A, b=A), half_of("bsp")
    folding = dense_folding(clocks, half)
    folding.sum.add(counted(clocks, a_push("a")), 1.0)

    facts = Recovery(clocks, half, folding).state().table

    assert (facts["clocks"]["a"]["clock"], facts["pushes"], facts["examples"]) == (0, 0, 0)


def test_a_sum_outside_of_rounds_is_in_a_snapshot_and_goes_on():
    clocks, half = clocks_with(a=A), half_of("kbuffered", k=3)
    folding = dense_folding(clocks, half)
    folding.sum.add(counted(clocks, a_push("a")), 1.0)
    state = Recovery(clocks, half, folding).state()

    clocks, half = Clocks(), half_of("kbuffered", k=3)
    folding = dense_folding(clocks, half)
    Recovery(clocks, half, folding).restore(state)

    assert (folding.sum.pushes, folding.sum.total.tolist(), clocks.buffered) == (1, [1.0, 1.0], 1)
    assert (clocks.entry("a").clock, clocks.entry("a").outcome) == (1, Outcome.BUFFERED)
    assert clocks.is_recovering


def test_the_table_of_a_snapshot_has_these_facts_in_this_order_in_plain_json():
    clocks, half = clocks_with(a=A), half_of("kbuffered", k=3)
    folding = dense_folding(clocks, half)
    folding.sum.add(counted(clocks, a_push("a")), 1.0)
    table = Recovery(clocks, half, folding).state().table

    assert json.loads(json.dumps(table)) == table
    assert list(table) == ["version", "pushes", "steps", "examples", "clocks", "policy", "rate", "switch", "gathered"]


def test_a_slice_comes_back_with_the_policy_that_the_run_had_changed_to():
    clocks, half = clocks_with(a=A), half_of("asp")
    half.adopt(Switch(2, {"name": "bsp"}, 10))
    state = recovery_of(clocks, half).state()

    again = half_of("asp")
    recovery_of(Clocks(), again).restore(state)

    assert (again.policy.rounds, again.made) == (True, Switch(2, {"name": "bsp"}, 10))

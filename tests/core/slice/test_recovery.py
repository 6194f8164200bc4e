"""What a snapshot of a slice holds, and what a slice does that comes back from one."""

import json

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.recovery import Recovery
from paceline.core.slice.server_half import ServerHalf
from paceline.core.values import Outcome, Seat, Switch
from tests.support.slice_parts import a_push, clocks_with, counted, dense_folding, half_of

A = Seat(1, 0)


def recovery_of(clocks: Clocks, half: ServerHalf) -> Recovery:
    return Recovery(clocks, half, dense_folding(clocks, half))


def test_a_slice_that_comes_back_has_its_snapshots_clocks_and_no_last_push_counts_any_more():
    clocks, half = clocks_with(a=A), half_of("asp")
    counted(clocks, a_push("a"))
    state = recovery_of(clocks, half).state()

    clocks = Clocks()
    recovery_of(clocks, half_of("asp")).restore(state)

    assert (clocks.entry("a").clock, clocks.entry("a").examples, clocks.entry("a").seen) == (1, 1, None)


def test_a_push_whose_round_is_open_is_not_in_a_snapshot():
    clocks, half = clocks_with(a=A, b=A), half_of("bsp")
    folding = dense_folding(clocks, half)
    folding.sum.add(counted(clocks, a_push("a")), 1.0)

    facts = Recovery(clocks, half, folding).state().table

    assert (facts["clocks"]["a"]["clock"], facts["pushes"], facts["examples"]) == (0, 0, 0)
    assert facts["clocks"]["a"]["examples"] == 0


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


def test_the_table_of_a_snapshot_has_these_facts_in_this_order_in_plain_json():
    clocks, half = clocks_with(a=A), half_of("kbuffered", k=3)
    folding = dense_folding(clocks, half)
    folding.sum.add(counted(clocks, a_push("a")), 1.0)
    table = Recovery(clocks, half, folding).state().table

    assert json.loads(json.dumps(table)) == table
    facts = ["version", "pushes", "steps", "examples", "clocks", "policy", "rate", "switch", "rounds", "gathered"]
    assert list(table) == facts


def test_a_slice_comes_back_with_the_policy_that_the_run_had_changed_to():
    clocks, half = clocks_with(a=A), half_of("asp")
    half.adopt(Switch(2, {"name": "bsp"}, 10))
    state = recovery_of(clocks, half).state()

    again = half_of("asp")
    recovery_of(Clocks(), again).restore(state)

    assert (again.policy.rounds, again.made) == (True, Switch(2, {"name": "bsp"}, 10))

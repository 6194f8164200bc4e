"""Who counts: seats, leases, incarnations, handicaps and last clocks, as views."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.chief.membership import Membership
from paceline.core.chief.older_state import as_older
from paceline.core.errors import Fenced, PoolFull
from paceline.core.policies.clocks import Clocks
from paceline.core.values import Seat, Switch


def members(*workers: str, rounds: bool = False, pool: int = 4, waits: bool = False) -> Membership:
    """A pool whose workers have all started at time 0."""
    membership = Membership(pool, lease=15.0, rounds=rounds, waits_for_lost=waits)
    for worker in workers:
        membership.candidate(worker, membership.join(worker, False, 0.0), 0, 0.0)
    membership.start({}, 0.0)
    return membership


def clocks_at(membership: Membership, version: int = 0, **counts: int) -> Clocks:
    clocks = Clocks()
    clocks.take_view(membership.view)
    clocks.version = version
    for worker, clock in counts.items():
        clocks.entry(worker).clock = clock
    return clocks


# coming
def test_everyone_starts_level_in_the_first_view():
    membership = members("a", "b")

    assert membership.view.number == 1
    assert membership.view.seats == {"a": Seat(1, 0), "b": Seat(1, 0)}


def test_a_candidate_that_joins_anew_has_to_get_ready_again():
    membership = Membership(2, 15.0, rounds=False)
    membership.candidate("a", membership.join("a", False, 0.0), 0, 0.0)

    membership.join("a", False, 1.0)
    membership.start({}, 2.0)

    assert membership.view.seats == {}


def test_a_joiner_is_level_with_the_slowest():
    membership = members("a", "b")
    clocks = clocks_at(membership, a=9, b=5)

    membership.seat("c", membership.join("c", False, 1.0), 0, None, clocks, 1.0)
    membership.seat("d", membership.join("d", False, 1.0), 7, None, clocks_at(membership, a=9, b=5, c=0), 1.0)

    assert membership.view.seats["c"] == Seat(1, handicap=5)
    assert membership.view.seats["d"] == Seat(1, handicap=-2)


def test_a_joiner_is_level_with_the_slowest_that_has_begun():
    membership = members("a", "b")
    clocks = clocks_at(membership, a=9, b=7)
    for worker in ("a", "b"):
        clocks.entry(worker).seen = 1
    levels = []
    for worker in ("c", "d"):
        membership.seat(worker, membership.join(worker, False, 1.0), 0, None, clocks, 1.0)
        clocks.take_view(membership.view)
        clocks.entry("b").clock += 1
        levels.append(membership.view.seats[worker].handicap)

    assert levels == [7, 8]
    assert clocks.slowest() == 7


def test_in_rounds_a_joiner_counts_from_the_round_after_the_open_one():
    membership = members("a", rounds=True)

    membership.seat("b", membership.join("b", False, 1.0), 3, None, clocks_at(membership, version=7, a=7), 1.0)

    assert membership.view.seats["b"] == Seat(1, handicap=8 - 3)


def test_a_seat_is_vacated_while_one_process_after_the_other_takes_it_over_without_a_step():
    membership = members("a", "b", rounds=True)
    absent = []
    for now in range(1, 26):
        if now % 4 == 0:
            membership.join("b", False, float(now))
        for worker in "ab":
            membership.beat(worker, membership.incarnations[worker], float(now), 4)
        membership.tick(float(now))
        if "b" not in membership.view.seats:
            absent.append(now)
        if now % 4 == 1:
            clocks = clocks_at(membership, version=4, a=4, b=4)
            membership.seat("b", membership.incarnations["b"], 4, None, clocks, float(now))

    assert absent == [8, 9, 16, 17, 24, 25]  # each second one finds nobody waiting for it
    assert membership.view.seats["b"].handicap == 1


def test_a_process_that_holds_its_seat_keeps_it_however_long_its_first_step_takes():
    membership = members("a", "b", rounds=True)
    for now in (2.0, 3.0):
        incarnation = membership.join("b", False, now)
        membership.seat("b", incarnation, 4, None, clocks_at(membership, version=4, a=4, b=4), now)
    for now in range(4, 60):
        for worker in "ab":
            membership.beat(worker, membership.incarnations[worker], float(now), 4)
        membership.tick(float(now))

    assert membership.view.seats["b"].incarnation == 3


def test_a_join_that_is_repeated_after_a_lost_answer_is_one_process():
    membership = members("a", "b", rounds=True)
    for now in (2.0, 2.5):
        membership.join("b", False, now)
    membership.tick(3.0)

    assert "b" in membership.view.seats


def test_no_seat_is_vacated_where_none_would_be_given():
    membership = members("a", "b", rounds=True)
    membership.join("b", False, 2.0)
    for now in range(3, 40):
        for worker in "ab":
            membership.beat(worker, membership.incarnations[worker], float(now))
        membership.tick(float(now), seats_are_given=False)

    assert "b" in membership.view.seats


def test_a_whole_run_that_comes_back_waits_for_members_whose_data_take_longer_than_a_lease():
    membership = members("a", "b", rounds=True)
    again = Membership(2, 15.0, rounds=True)
    again.restore(deepcopy(membership.state()), 0.0)
    for worker in "ab":
        again.join(worker, False, 1.0)
    for now in range(2, 60):
        for worker in "ab":
            again.beat(worker, again.incarnations[worker], float(now))
        again.tick(float(now))

    assert set(again.view.seats) == {"a", "b"}


def test_a_seat_may_be_taken_over_as_often_as_a_step_is_made_in_between():
    membership = members("a", "b", rounds=True)
    for now in range(1, 41):
        if now % 10 == 0:
            incarnation = membership.join("b", False, float(now))
            membership.seat("b", incarnation, now, None, clocks_at(membership, version=4, a=4, b=4), float(now))
        for worker in "ab":
            membership.beat(worker, membership.incarnations[worker], float(now), now)
        membership.tick(float(now))
        assert "b" in membership.view.seats


@pytest.mark.parametrize(("waits", "stays"), [(False, False), (True, True)])
def test_a_process_that_joins_for_a_held_seat_has_a_lease_to_begin(waits: bool, stays: bool):
    membership = members("a", "b", rounds=True, waits=waits)
    for now in range(1, 21):
        for worker in "ab":
            if now == 1 and worker == "b":
                membership.join("b", False, float(now))
            membership.beat(worker, membership.incarnations[worker], float(now))
        membership.tick(float(now))
        assert "b" in membership.view.seats or now > 16

    assert ("b" in membership.view.seats) is stays
    assert "b" in membership.places


def test_the_same_name_takes_over_its_seat_and_keeps_its_handicap():
    membership = members("a", "b", pool=2)
    clocks = clocks_at(membership, a=3, b=4)

    incarnation = membership.join("b", False, 1.0)
    membership.seat("b", incarnation, 4, None, clocks, 1.0)

    assert incarnation == 2
    assert membership.view.seats["b"] == Seat(2, handicap=0)


def test_a_repeated_seat_changes_nothing():
    membership = members("a")
    before = membership.view

    membership.seat("a", 1, 0, None, clocks_at(membership), 1.0)

    assert membership.view is before


def test_a_full_pool_says_so():
    membership = members("a", "b", pool=2)

    with pytest.raises(PoolFull, match=r"All 2 seats are taken; c waits for one. Raise 'workers'"):
        membership.join("c", False, 1.0)
    assert membership.queued(1.0) == ["c"]
    assert membership.queued(1.1 + membership.lease) == []


def test_a_fenced_process_does_not_replace_its_living_successor():
    membership = members("a")
    membership.seat("a", membership.join("a", False, 1.0), 0, None, clocks_at(membership), 1.0)

    with pytest.raises(Fenced, match=r"a lost its seat to incarnation 2, which is alive: nothing is left to do here"):
        membership.join("a", True, 2.0)


def test_a_fenced_process_takes_a_vacant_seat_and_may_repeat_a_join_whose_answer_was_lost():
    membership = members("a")
    membership.leave("a", 1)

    assert membership.join("a", True, 2.0) == 2
    assert membership.join("a", True, 3.0) == 3


def test_a_process_that_an_older_state_does_not_know_takes_its_seat_again():
    membership = members("a")
    membership.seat("a", 1, 0, None, clocks_at(membership), 1.0)
    kept = as_older({"membership": deepcopy(membership.state())})
    assert membership.join("a", False, 1.0) == 2
    again = Membership(2, 15.0, rounds=False)

    again.restore(kept["membership"], 2.0)

    with pytest.raises(Fenced, match=r"was expelled or replaced. Join again"):
        again.beat("a", 2, 2.0)
    assert again.join("a", True, 2.0) == 2
    assert again.view.number > membership.view.number + 100_000


def test_a_seat_needs_a_claim():
    membership = members("a")

    with pytest.raises(Fenced, match=r"b has no claim to a seat with incarnation 1. Join first"):
        membership.seat("b", 1, 0, None, clocks_at(membership), 1.0)


def test_places_follow_the_workers_own_numbers_and_so_do_shards():
    membership = Membership(3, 15.0, rounds=False)
    for worker in ("worker-2", "worker-7", "worker-0"):
        membership.join(worker, False, 0.0)

    assert membership.shards("worker-2", 8) == [2, 5]
    assert membership.shards("worker-7", 8) == [0, 3, 6]
    assert membership.shards("worker-0", 8) == [1, 4, 7]


# going
def test_a_lapsed_lease_is_a_leave():
    membership = members("a", "b", "c")
    membership.join("c", False, 0.0)  # its predecessor's beats don't keep its lease
    for now in range(1, 16):
        membership.tick(float(now))
        membership.beat("b", 1, float(now))
        membership.beat("c", 1, float(now))

    assert membership.tick(16.0) == ["a", "c"]
    assert set(membership.view.seats) == {"b"}


def test_a_beat_after_the_lease_is_fenced():
    membership = members("a")
    membership.leave("a", 1)

    with pytest.raises(Fenced, match=r"was expelled or replaced. Join again"):
        membership.beat("a", 1, 1.0)


def test_a_chief_that_was_late_expels_nobody():
    membership = members("a")
    membership.tick(1.0)

    assert membership.tick(30.0) == []
    for now in range(31, 46):
        assert membership.tick(float(now)) == []
    assert membership.tick(46.0) == ["a"]


def test_a_lost_worker_keeps_its_seat_where_the_run_waits_for_it():
    membership = members("a", "b", waits=True)
    for now in range(1, 17):
        membership.tick(float(now))
        membership.beat("b", 1, float(now))

    assert set(membership.view.seats) == {"a", "b"}
    assert membership.join("a", True, 20.0) == 2


def test_leaving_twice_and_leaving_as_a_predecessor_change_nothing():
    membership = members("a", "b")
    membership.join("a", False, 1.0)
    before = membership.view

    membership.leave("a", 1)
    membership.leave("c", 1)

    assert membership.view is before


def test_a_finished_workers_place_is_not_vacant_even_after_a_late_beat():
    membership = members("a", pool=1)
    membership.leave("a", 1, finished=True)

    membership.beat("a", 1, 1.0)
    for now in range(2, 40):
        membership.tick(float(now))

    with pytest.raises(PoolFull):
        membership.join("b", False, 41.0)


# the end
def test_a_stop_names_everybodys_next_clock():
    membership = members("a", "b")

    membership.stop(clocks_at(membership, a=5, b=2))

    assert {worker: seat.last for worker, seat in membership.view.seats.items()} == {"a": 6, "b": 3}


@pytest.mark.parametrize("ends", [True, False], ids=["a stop", "a change of policy"])
@pytest.mark.parametrize(
    ("version", "joiner", "lasts"),
    [
        pytest.param(6, 1, {"a": 8, "b": 4}, id="under way"),
        pytest.param(3, 0, {"a": 5, "b": 1}, id="right after a join, which leaves the joiner a round"),
        pytest.param(1, 0, {"a": 5, "b": 1}, id="where the chief fell back behind the joiner's level"),
    ],
)
def test_in_rounds_a_stop_and_a_change_name_one_round_for_all(
    version: int, joiner: int, lasts: dict[str, int], ends: bool
):
    membership = members("a", rounds=True)
    membership.seat("b", membership.join("b", False, 1.0), 0, None, clocks_at(membership, version=3, a=3), 1.0)
    clocks = clocks_at(membership, version=version, a=version, b=joiner)

    membership.stop(clocks) if ends else membership.switch({"name": "asp"}, clocks)

    seats = membership.view.seats.items()
    assert {worker: seat.last if ends else seat.switch_clock for worker, seat in seats} == lasts


def test_a_stop_does_not_move_an_earlier_last_clock():
    membership = members()
    membership.candidate("a", membership.join("a", False, 0.0), 0, 0.0)
    membership.start({"a": 4}, 0.0)

    membership.stop(clocks_at(membership, a=9))

    assert membership.view.seats["a"].last == 4


# a change of policy
def test_a_change_names_the_clock_up_to_which_each_member_keeps_the_old_policy():
    membership = members("a", "b")

    membership.switch({"name": "ssp"}, clocks_at(membership, a=5, b=2))

    assert {worker: seat.switch_clock for worker, seat in membership.view.seats.items()} == {"a": 6, "b": 3}
    assert membership.view.switch == Switch(1, {"name": "ssp"}, 12)  # 9 pushes may fold, and one more for each worker
    assert membership.view.made is None
    assert membership.is_switching


def test_a_change_that_all_have_made_leaves_everybody_level_and_counts_in_its_way():
    membership = members("a", "b")
    membership.switch({"name": "bsp"}, clocks_at(membership, a=5, b=2))

    membership.end_switch(rounds=True)

    assert membership.view.seats == {"a": Seat(1, 6), "b": Seat(1, 9)}
    assert membership.view.made == membership.view.switch
    assert membership.rounds
    assert not membership.is_switching


def test_the_next_change_begins_beyond_the_last_one():
    membership = members("a")
    membership.switch({"name": "ssp"}, clocks_at(membership, a=5))
    membership.end_switch(rounds=False)

    membership.switch({"name": "asp"}, clocks_at(membership, version=11, a=8))

    assert membership.view.switch == Switch(2, {"name": "asp"}, 8 + 9 + 2)
    assert membership.view.made == Switch(1, {"name": "ssp"}, 8)


def test_a_change_goes_on_when_all_its_members_have_left():
    membership = members("a")
    membership.switch({"name": "bsp"}, clocks_at(membership, a=5))
    membership.leave("a", 1)
    assert membership.is_switching

    membership.end_switch(rounds=True)

    assert (membership.is_switching, membership.rounds) == (False, True)


def test_a_process_that_takes_over_a_seat_has_its_predecessors_switch_clock():
    membership = members("a", "b")
    membership.switch({"name": "ssp"}, clocks_at(membership, a=5))

    membership.seat("a", membership.join("a", False, 1.0), 5, None, clocks_at(membership, a=5), 1.0)

    assert membership.view.seats["a"] == Seat(2, 0, switch_clock=6)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_restarted_chief_knows_of_a_change_and_whether_it_is_over(is_over):
    membership = members("a", "b")
    membership.switch({"name": "bsp"}, clocks_at(membership, a=5, b=2))
    if is_over:
        membership.end_switch(rounds=True)

    again = Membership(4, lease=15.0, rounds=False)
    again.restore(json.loads(json.dumps(membership.state())), 9.0)

    assert again.view == membership.view
    assert (again.is_switching, again.rounds) == (not is_over, is_over)


# snapshots
def test_a_restarted_chief_goes_on_with_views_incarnations_and_new_leases():
    membership = members("a", "b")
    membership.join("a", False, 3.0)
    membership.seat("b", membership.join("b", False, 3.0), 0, None, clocks_at(membership), 3.0)
    state = json.loads(json.dumps(membership.state()))

    again = Membership(4, 15.0, rounds=False)
    again.restore(state, 100.0)

    assert again.view == membership.view
    assert again.tick(101.0) == []
    again.beat("b", 2, 101.0)
    assert again.join("a", False, 102.0) == 3


def test_a_restarted_chief_remembers_whose_share_is_finished():
    membership = members("a", pool=1)
    membership.leave("a", 1, finished=True)

    again = Membership(1, 15.0, rounds=False)
    again.restore(json.loads(json.dumps(membership.state())), 100.0)

    with pytest.raises(PoolFull):
        again.join("b", False, 101.0)


ACTIONS = st.tuples(st.sampled_from(["join", "seat", "beat", "leave", "finish", "tick"]), st.sampled_from("abcd"))


@given(st.lists(ACTIONS, max_size=80), st.booleans(), st.booleans())
def test_whatever_happens_numbers_grow_and_the_pool_is_kept(actions, rounds, waits):
    membership = Membership(3, 15.0, rounds, waits)
    incarnations = dict.fromkeys("abcd", 0)
    now, clocks = 0.0, Clocks()

    for action, worker in actions:
        before, now = membership.view, now + 2.0
        mine = incarnations[worker]
        try:
            if action == "join":
                incarnations[worker] = membership.join(worker, False, now)
                assert incarnations[worker] > mine
            elif action == "seat":
                membership.seat(worker, mine, 0, None, clocks, now)
            elif action == "beat":
                membership.beat(worker, mine, now)
            elif action == "tick":
                membership.tick(now)
            else:
                membership.leave(worker, mine, action == "finish")
        except (Fenced, PoolFull):
            assert membership.view is before
        clocks.take_view(membership.view)
        places = [place.index for place in membership.places.values()]
        assert membership.view.number >= before.number
        assert membership.view is before or membership.view.number == before.number + 1
        assert len(set(places)) == len(places) <= 3
        assert set(membership.view.seats) <= set(membership.places)
        assert all(seat.incarnation <= incarnations[name] for name, seat in membership.view.seats.items())


# a whole run that stops and comes back
def test_in_rounds_a_worker_that_is_told_to_stop_alone_departs_after_a_moment():
    membership = members("a", "b", rounds=True)

    membership.stop_signal("a", 1, 1.0, has_left=True)
    membership.tick(2.9)
    before = set(membership.view.seats)
    membership.tick(3.1)

    assert before == {"a", "b"}
    assert set(membership.view.seats) == {"b"}
    assert "a" not in membership.places


def test_without_rounds_it_departs_at_once_and_keeps_its_seat_as_long_as_it_computes():
    membership = members("a", "b")

    membership.stop_signal("a", 1, 1.0)
    membership.tick(9.0)
    assert set(membership.view.seats) == {"a", "b"}
    membership.stop_signal("a", 1, 9.0, has_left=True)

    assert set(membership.view.seats) == {"b"}


def test_workers_that_are_all_told_to_stop_keep_their_seats_however_long_they_are_away():
    membership = members("a", "b", rounds=True)
    view = membership.view

    membership.stop_signal("a", 1, 1.0, has_left=True)
    membership.stop_signal("b", 1, 2.0)
    for now in range(3, 100):
        assert membership.tick(float(now)) == []

    assert membership.view == view
    assert membership.awaited == ["a", "b"]


def test_those_who_come_back_wait_for_the_others_as_long_as_at_the_start():
    membership = members("a", "b", rounds=True)
    membership.start_timeout = 60.0
    for worker in ("a", "b"):
        membership.stop_signal(worker, 1, 1.0, has_left=True)

    incarnation = membership.join("a", False, 100.0)
    membership.seat("a", incarnation, 5, None, clocks_at(membership, version=5, a=5, b=5), 100.0)
    early = [lapsed for now in range(100, 160) for lapsed in beaten(membership, "a", incarnation, float(now))]
    late = [lapsed for now in range(160, 180) for lapsed in beaten(membership, "a", incarnation, float(now))]

    assert (early, late) == ([], ["b"])
    assert set(membership.view.seats) == {"a"}


def beaten(membership: Membership, worker: str, incarnation: int, now: float) -> list[str]:
    """Who has lapsed while this worker beats."""
    membership.beat(worker, incarnation, now)
    return membership.tick(now)


def test_once_as_many_are_back_as_the_run_starts_with_the_others_have_their_lease():
    membership = members("a", "b", "c", rounds=True)
    membership.start_when = 2
    for worker in ("a", "b", "c"):
        membership.stop_signal(worker, 1, 1.0, has_left=True)

    membership.join("a", False, 100.0)
    one = membership.awaited
    membership.join("b", False, 101.0)

    assert (one, membership.awaited) == (["b", "c"], [])
    assert membership.tick(102.0) == []
    assert membership.tick(109.0) == []
    assert membership.tick(116.5) == ["a", "b", "c"]


@pytest.mark.parametrize(("comes_anew", "lapsed", "awaited"), [(True, [], ["b"]), (False, ["b"], [])])
def test_a_restarted_chief_waits_for_members_that_were_away_with_it_and_gives_those_that_live_their_lease(
    comes_anew, lapsed, awaited
):
    again = Membership(4, 15.0, rounds=True)
    again.restore(json.loads(json.dumps(members("a", "b", rounds=True).state())), 0.0)

    incarnation = again.join("a", False, 1.0) if comes_anew else 1

    assert [each for now in range(1, 60) for each in beaten(again, "a", incarnation, float(now))] == lapsed
    assert again.awaited == awaited


def test_a_lease_shorter_than_that_moment_does_not_lapse_on_the_way_out():
    membership = members("a", "b", rounds=True)
    membership.lease = 0.5
    membership.stop_signal("a", 1, 0.0, has_left=True)

    assert beaten(membership, "b", 1, 0.6) == []
    assert beaten(membership, "b", 1, 2.1) == []
    assert set(membership.view.seats) == {"b"}


# what a worker with a stop signal may still do
def test_without_rounds_a_worker_that_is_told_to_stop_always_leaves_alone():
    membership = members("a", "b")
    for worker in ("a", "b"):
        membership.stop_signal(worker, 1, 1.0)

    assert [membership.leaves_alone(worker, 1, 1.0) for worker in ("a", "b")] == [True, True]
    assert membership.leaves_alone("a", 2, 1.0) is False


@pytest.mark.parametrize(("others", "answers"), [([], [None, None, True]), (["b"], [False, False, False])])
def test_in_rounds_it_leaves_alone_once_the_others_have_had_a_moment_and_no_signal(others, answers):
    membership = members("a", "b", rounds=True)
    for worker in ("a", *others):
        membership.stop_signal(worker, 1, 1.0)

    assert [membership.leaves_alone("a", 1, now) for now in (1.0, 2.9, 3.1)] == answers


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["beat", "leave"])), max_size=12))
def test_heartbeats_of_workers_that_are_all_told_to_stop_cost_nobody_its_seat(calls):
    """Each beats until it leaves; nobody is back because of that."""
    membership = members("a", "b", "c", rounds=True)
    view, gone = membership.view, set()
    for worker in "abc":
        membership.stop_signal(worker, 1, 1.0)
    for worker, call in [*calls, *((worker, "leave") for worker in "abc")]:
        if worker in gone:
            continue
        membership.beat(worker, 1, 1.5, stopping=True)
        membership.stop_signal(worker, 1, 1.5, has_left=call == "leave")
        gone |= {worker} if call == "leave" else set()
    for now in range(2, 60):
        assert membership.tick(float(now)) == []

    assert membership.view == view
    assert membership.awaited == ["a", "b", "c"]

"""Which versions all servers keep in lock-step, and when they go back to one; what the others have said."""

import json

import pytest

from paceline.core.chief.common_snapshots import CommonSnapshots, GoBack, Returns
from paceline.core.chief.other_servers import OtherServers


def reported(kept: list[list[int]], due: int = 0) -> CommonSnapshots:
    """Two or more servers that have said what they have on disk."""
    common = CommonSnapshots(len(kept))
    for server, versions in enumerate(kept):
        common.reported(server, versions, due, 0)
    return common


def test_a_version_is_named_that_no_slice_can_have_reached_once_the_pause_is_over():
    common = reported([[0], [0]])

    assert common.name(7, 0, 5.0, 0.0) is False
    assert common.name(8, 0, 5.0, 4.9) is False
    assert common.name(9, 0, 5.0, 5.0) is True
    assert common.due == 11


def test_none_is_named_before_every_server_was_heard_on_the_way_back_and_for_one_server_alone():
    heard_of_one, alone, back = CommonSnapshots(2), reported([[0]]), reported([[5], [5]])
    heard_of_one.reported(0, [0], 0, 0)
    back.go_back()

    assert [common.name(7, 0, 0.0, 100.0) for common in (heard_of_one, alone, back)] == [False] * 3


def test_the_named_version_is_known_when_every_other_server_has_said_so():
    common = reported([[0], [0], [0]])
    common.name(7, 0, 0.0, 0.0)

    common.reported(1, [0], 9, 0)
    before = common.is_known
    common.reported(2, [0], 9, 0)

    assert (before, common.is_known) == (False, True)


def test_the_next_one_is_named_when_all_have_written_the_last_one():
    common = reported([[0], [0]])
    common.name(7, 0, 0.0, 0.0)

    common.reported(0, [0, 9], 9, 0)
    before = common.name(20, 0, 1.0, 5.0)
    common.reported(1, [0, 9], 9, 0)

    assert before is False
    assert common.name(20, 0, 1.0, 5.0) is True
    assert common.due == 22


def test_a_server_that_can_not_write_does_not_keep_the_others_from_it():
    common = reported([[0], [0]])
    common.name(7, 0, 0.0, 0.0)
    assert common.name(8, 0, 1.0, 100.0) is False, "the version is not reached yet"
    common.reported(0, [0, 9], 9, 0)

    assert common.name(20, 0, 1.0, 9.0) is False
    assert common.name(20, 0, 1.0, 11.0) is True


def test_a_slow_object_store_has_minutes_for_the_same_version_of_all_servers():
    common = CommonSnapshots(2, has_store=True)
    for server in range(2):
        common.reported(server, [0], 0, 0)
    common.name(7, 0, 0.0, 0.0)
    common.reported(0, [0, 9], 9, 0)

    assert common.name(20, 0, 1.0, 500.0) is False
    assert common.name(20, 0, 1.0, 601.0) is True


def test_slices_may_be_further_than_that_of_a_chief_that_is_back_from_a_snapshot():
    common = reported([[0], [0]])

    common.name(7, 30, 0.0, 0.0)

    assert common.due == 32


def test_a_worker_that_says_too_much_does_not_keep_all_from_snapshots():
    common = reported([[0], [0]])
    common.name(7, 10**9, 0.0, 0.0)

    assert common.name(8, 10**9, 0.0, 11.0) is True
    assert common.due == 10


def test_a_server_that_comes_back_is_followed_by_a_snapshot_soon():
    common = reported([[0], [0]])
    common.name(7, 0, 30.0, 0.0)

    common.soon(100.0)

    assert common.name(7, 0, 1.0, 100.5) is False
    assert common.name(7, 0, 1.0, 101.0) is True


def test_all_go_back_to_the_newest_version_that_each_has():
    common = reported([[5, 10, 15], [10, 5]])

    assert common.newest == 10
    assert common.go_back() is True
    assert common.go_back() is True, "a second request changes nothing"
    assert common.order(0) == common.order(1) == GoBack(1, 10)
    assert common.is_going_back


def test_each_server_goes_back_once():
    common = reported([[5], [5]])
    common.go_back()

    common.reported(1, [5], 0, 1)
    first = common.is_going_back
    common.reported(0, [5], 0, 1)
    common.reported(1, [5], 0, 0)  # a new process of it

    assert (first, common.is_going_back) == (True, False)
    assert common.order(1) is None


def test_without_a_common_version_nobody_goes_back():
    common = reported([[5], [6]])

    assert common.go_back() is False
    assert common.order(0) is None


def test_a_restarted_chief_knows_who_has_to_go_back():
    common = reported([[5], [5]])
    common.go_back()
    common.reported(1, [5], 0, 1)

    again = CommonSnapshots(2)
    again.restore(json.loads(json.dumps(common.state())))

    assert again.order(0) == GoBack(1, 5)
    assert again.order(1) is None


def test_a_server_that_still_trains_keeps_its_common_snapshot_until_all_have_reported_to_a_restarted_chief():
    restarted = CommonSnapshots(2)
    restarted.reported(0, [50, 60], 0, 0)

    before = restarted.newest_for(60)
    restarted.reported(1, [50], 0, 0)

    assert (before, restarted.newest_for(60)) == (60, 50)
    assert reported([[50], [60]]).newest_for(60) == 0


def test_a_run_of_an_older_release_has_no_order():
    common = CommonSnapshots(2)
    common.restore({})

    assert common.is_going_back is False


def test_a_snapshot_that_turns_out_to_be_damaged_is_replaced_by_an_older_one_that_all_have():
    common = reported([[5, 10], [5, 10]])
    common.go_back()
    common.reported(0, [5, 10], 0, 1)

    common.reported(1, [5], 0, 0)

    assert common.order(0) == common.order(1) == GoBack(2, 5)


def test_where_no_other_one_is_left_nobody_is_on_the_way_any_more():
    common = reported([[10], [10]])
    common.go_back()

    common.reported(1, [], 0, 0)

    assert common.is_going_back is False
    assert common.go_back() is False


@pytest.mark.parametrize(
    ("after", "helps"),
    [
        ([(2, 2), (2, 0)], False),
        ([(3, 2), (2, 0)], False),
        ([(1, 2), (2, 0)], True),  # server 0 has not gone back yet
        ([(2, 0), (2, 0)], True),  # the slices are level now
    ],
)
def test_going_back_again_does_not_help_where_every_slice_still_has_the_same_clock_of_the_worker(
    after: list[tuple[int, int]], helps: bool
) -> None:
    returns = Returns()
    assert returns.help([(1, 2), (1, 0)])
    assert returns.help(after) is helps


def test_a_worker_that_has_trained_since_may_let_all_servers_go_back_again() -> None:
    returns = Returns()
    returns.help([(1, 2), (1, 0)])
    returns.trains()
    assert returns.help([(2, 2), (2, 0)])


def test_a_view_is_followed_and_a_change_of_policy_made_once_every_other_server_says_so_or_is_further():
    others = OtherServers(3)
    assert not others.follow(0)
    assert not others.have_made(1)

    others.acknowledged(1, term=1, view=5, switch=1)
    assert not others.follow(5)
    assert not others.have_made(1)
    others.acknowledged(2, term=1, view=6, switch=1)

    assert [others.follow(view) for view in (5, 6)] == [True, False]
    assert [others.have_made(switch) for switch in (1, 2)] == [True, False]


@pytest.mark.parametrize(("term", "view", "stays"), [(1, 4, True), (2, 0, False)], ids=["same process", "new process"])
def test_an_older_word_of_a_server_counts_only_where_it_was_started_again(term, view, stays):
    others = OtherServers(2)

    others.acknowledged(1, term=1, view=5, switch=1)
    others.acknowledged(1, term=term, view=view, switch=0)

    assert (others.follow(5), others.have_made(1), others.terms) == (stays, stays, {1: term})


def test_a_chief_without_other_servers_waits_for_nobody():
    for servers in (0, 1):
        others = OtherServers(servers)

        others.keep_open(9, 8)
        assert (others.follow(9), others.have_made(9), others.open_from) == (True, True, None)


def test_a_joiner_begins_with_the_next_version_unless_a_view_keeps_the_open_round_open_already():
    others = OtherServers(2)
    starts = []
    for view, version in ((5, 7), (6, 7), (7, 8)):
        starts.append(others.start_of(version))
        others.keep_open(view, starts[-1])
    others.acknowledged(1, term=1, view=7, switch=0)
    starts.append(others.start_of(8))

    assert starts == [8, 9, 10, 9]


def test_a_round_waits_for_the_views_that_concern_it_and_for_no_later_one():
    others = OtherServers(2)
    others.keep_open(5, 8)
    others.keep_open(6, 9)
    firsts = [others.open_from]

    for view in (5, 6):
        others.acknowledged(1, term=1, view=view, switch=0)
        firsts.append(others.open_from)

    assert firsts == [8, 9, None]


def test_a_view_that_keeps_two_rounds_open_keeps_the_earlier_one_open():
    others = OtherServers(2)
    for first in (8, 6, 10):
        others.keep_open(5, first)

    assert others.open_from == 6

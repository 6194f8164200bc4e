"""What the other servers have said, and for what the chief waits."""

from paceline.core.chief.other_servers import OtherServers


def test_a_view_is_followed_once_every_other_server_has_it_or_a_newer_one():
    others = OtherServers(3)
    assert not others.follow(0)

    others.acknowledged(1, term=1, view=5, switch=0)
    assert not others.follow(5)
    others.acknowledged(2, term=1, view=6, switch=0)

    assert [others.follow(view) for view in (5, 6)] == [True, False]


def test_a_change_of_policy_is_made_once_every_other_server_says_so():
    others = OtherServers(3)
    assert not others.have_made(1)

    others.acknowledged(1, term=1, view=5, switch=1)
    assert not others.have_made(1)
    others.acknowledged(2, term=1, view=5, switch=1)

    assert [others.have_made(switch) for switch in (1, 2)] == [True, False]


def test_an_older_word_of_the_same_process_changes_nothing():
    others = OtherServers(2)

    others.acknowledged(1, term=1, view=5, switch=1)
    others.acknowledged(1, term=1, view=4, switch=0)

    assert (others.follow(5), others.have_made(1)) == (True, True)


def test_a_server_that_was_started_again_begins_anew():
    others = OtherServers(2)

    others.acknowledged(1, term=1, view=5, switch=1)
    others.acknowledged(1, term=2, view=0, switch=0)

    assert (others.follow(5), others.have_made(1), others.terms) == (False, False, {1: 2})


def test_a_chief_without_other_servers_waits_for_nobody():
    for servers in (0, 1):
        others = OtherServers(servers)

        assert (others.follow(9), others.have_made(9), others.open_from(7)) == (True, True, None)


def test_rounds_stay_open_from_the_one_that_counts_a_joiner():
    assert OtherServers(2).open_from(7) == 9

"""Which snapshots a diverged run goes back to, and when it gives up."""

import json
from typing import Any

import pytest

from paceline.core.chief.rollback import Divergence
from paceline.core.settings.config import Config


def watching(**settings: Any) -> Divergence:
    return Divergence(Config(**({"servers": 2, "heartbeat": 1.0} | settings)))


def looked(
    found: Divergence,
    *stored: set[int],
    now: float,
    is_well: bool = True,
    rounds: bool = False,
    clocks: dict[str, int] | None = None,
) -> Divergence:
    """After the servers have reported, heard what to keep, and reported again. `clocks`: None where steps are quick."""
    for _ in range(2):
        for server, versions in enumerate(stored):
            found.reported(server, versions, set(found.spared(server)) & versions)
        found.look(is_well, rounds, now / 10, now, {"a": 10 * int(now)} if clocks is None else clocks)
    return found


def test_the_first_weights_are_good_until_a_snapshot_has_lasted_for_three_heartbeats() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0)
    assert found.good.versions == (0, 0)

    looked(found, {0, 4, 6}, {0, 5, 7}, now=3.9)
    assert found.good.versions == (0, 0)
    looked(found, {0, 4, 6}, {0, 5, 7}, now=4.0)
    assert found.good.versions == (4, 5)


def test_a_snapshot_is_not_good_before_every_member_has_trained_on_it() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0, clocks={"a": 7, "b": 7, "gone": 7})

    for now, b, versions in ((20.0, 8, (0, 0)), (30.0, 9, (4, 5))):
        looked(found, {0, 4, 6}, {0, 5, 7}, now=now, clocks={"a": 99, "b": b, "new": 1})
        assert found.good.versions == versions


def test_a_bad_step_keeps_the_newest_snapshots_from_becoming_good() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0)
    looked(found, {0, 4}, {0, 5}, now=2.0, is_well=False)
    looked(found, {0, 4}, {0, 5}, now=4.0)

    assert found.good.versions == (0, 0)


def test_in_rounds_all_slices_are_of_one_version() -> None:
    found = looked(watching(), {0, 4, 8}, {0, 4, 9}, now=1.0, rounds=True)
    looked(found, {0, 4, 8}, {0, 4, 9}, now=4.0, rounds=True)

    assert found.good.versions == (4, 4)


def test_what_is_good_and_what_may_become_so_is_spared() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0)

    assert [found.spared(server) for server in (0, 1)] == [[0, 4], [0, 5]]


def test_a_snapshot_that_is_gone_does_not_become_good() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0)
    looked(found, {0, 6}, {0, 5}, now=4.0)

    assert found.good.versions == (0, 0)


def test_a_snapshot_does_not_become_good_before_its_server_has_confirmed_to_keep_it() -> None:
    found = looked(watching(), {0, 4}, {0, 5}, now=1.0)
    found.reported(0, {0, 4}, {0, 4})
    found.reported(1, {0, 5}, {0})
    found.look(True, False, 0.4, 4.0, {})
    assert found.good.versions == (0, 0)

    found.reported(1, {0, 5}, {0, 5})
    found.look(True, False, 0.5, 5.0, {})
    assert found.good.versions == (4, 5)


def test_a_run_waits_for_servers_that_have_not_said_yet_what_they_have_and_keep() -> None:
    found = watching()
    found.reported(0, {0}, {0})
    found.look(True, False, 0.1, 1.0, {})
    assert found.may_find

    found.reported(1, {0}, set())
    found.look(True, False, 0.1, 1.0, {})
    assert found.may_find

    found.reported(1, {0}, {0})
    found.look(True, False, 0.1, 1.0, {})
    assert not found.may_find
    assert found.good is not None


def test_where_all_servers_went_back_behind_it_another_snapshot_becomes_good() -> None:
    found = looked(watching(), {2, 4}, {2, 4}, now=1.0, rounds=True)
    looked(found, {2, 4}, {2, 4}, now=4.0, rounds=True)
    assert found.good.versions == (4, 4)

    looked(found, {2}, {2}, now=5.0, rounds=True)
    assert found.good.versions == (2, 2)


def test_a_snapshot_of_what_the_run_went_back_from_does_not_become_good() -> None:
    found = looked(watching(), {0, 500}, {0, 480}, now=1.0, is_well=False)
    found.go_back()
    found.begins_again(511)
    restarted = watching()
    restarted.restore(json.loads(json.dumps(found.state())))

    for each in (found, restarted):
        for now in (2.0, 6.0, 10.0):
            looked(each, {0, 500}, {0, 480}, now=now)
        assert each.good.versions == (0, 0)
        for now in (11.0, 15.0):
            looked(each, {0, 500, 511}, {0, 520}, now=now)
        assert each.good.versions == (511, 520)


def test_it_gives_up_after_the_stated_number_and_says_how_often_it_went_back() -> None:
    found = looked(watching(divergence={"rollbacks": 1, "factor": 0.1}), {0}, {0}, now=1.0)
    assert found.refusal == ""
    point, said = found.go_back()

    assert (point.versions, found.rate) == ((0, 0), 0.1)
    assert said == "went back to version 0 (epoch 0.0), learning rate x 0.1; 1 of 1"
    assert found.refusal == "it went back once, to a learning rate x 0.1 (divergence.rollbacks=1)"


def test_slices_of_different_versions_are_all_named() -> None:
    found = looked(watching(), {1200, 4}, {5}, now=1.0)

    assert "went back to versions 4, 5 (epoch 0.1)" in found.go_back()[1]


def test_without_a_snapshot_of_every_server_it_can_not_go_back() -> None:
    found = looked(watching(), {0}, set(), now=1.0)

    assert found.refusal == "no snapshot of every server was on disk, so it could not go back"


@pytest.mark.parametrize("settings", [{"divergence": {"rollbacks": 0}}, {"servers": 0}, {"updates": "sparse"}])
def test_runs_that_do_not_go_back_spare_nothing(settings: dict[str, Any]) -> None:
    found = looked(watching(**settings), {0}, {0}, now=1.0)

    assert not found.is_on
    assert found.spared(0) == []
    assert found.refusal == "it does not go back (divergence.rollbacks)"


def test_a_restarted_chief_remembers_where_to_go_back_to_and_how_often_it_has() -> None:
    before = looked(watching(), {0}, {0}, now=1.0)
    before.go_back()
    before.gave_up = True
    after = watching()
    after.restore(json.loads(json.dumps(before.state())))

    assert (after.good, after.done, after.rate, after.gave_up) == (before.good, 1, 0.5, True)


def test_the_state_of_an_older_release_has_none_of_it() -> None:
    after = watching()
    after.restore({})

    assert (after.good, after.done) == (None, 0)

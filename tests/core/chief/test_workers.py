"""What the chief knows of each worker besides its seat."""

import json

import pytest

from paceline.core.chief.membership import Membership
from paceline.core.chief.workers import WorkerReport, Workers
from paceline.core.errors import ConfigError
from paceline.core.policies.clocks import Clocks


def started(*names: str) -> tuple[Workers, Membership]:
    """All of them have a seat and serve their local model at host:NAME."""
    membership = Membership(4, 15.0, rounds=False)
    workers = Workers(membership)
    for name in names:
        membership.candidate(name, membership.join(name, False, 0.0), 0, 0.0)
        workers.joined(name, f"host:{name}", 0.0)
    membership.start({}, 0.0)
    workers.started()
    return workers, membership


def test_members_stand_in_worker_order_with_incarnation_and_address():
    workers, _ = started("worker-10", "worker-9")

    assert workers.members == [("worker-9", 1, "host:worker-9"), ("worker-10", 1, "host:worker-10")]


def test_local_models_are_read_of_members_and_of_those_that_have_finished():
    workers, membership = started("a", "b", "c")

    membership.leave("a", 1, finished=True)
    membership.leave("b", 1)

    assert workers.local_models == ["host:a", "host:c"]


def test_a_late_worker_takes_the_final_model_where_the_others_ended_while_its_seat_was_still_kept():
    workers, membership = started("worker-0", "worker-1")
    membership.leave("worker-1", 1, finished=True)
    workers.finished.add("worker-1")
    assert not workers.scores("worker-1"), "worker-0 has died, but its lease lasts"

    membership.leave("worker-0", 1)
    after = Workers(membership)
    after.restore(json.loads(json.dumps(workers.state())), 9.0)

    assert after.first is None
    assert after.scores("worker-0")


def test_a_worker_that_serves_no_local_model_has_no_address():
    workers, _ = started("a")

    workers.joined("a", "", 1.0)

    assert workers.local_models == []


def test_the_fastest_is_the_fastest_member():
    workers, membership = started("a", "b")
    assert workers.fastest == 0.0
    workers.reports["a"] = WorkerReport(figures={"compute_rate": 70.0})
    workers.reports["b"] = WorkerReport(figures={"compute_rate": 90.0})
    assert workers.fastest == 90.0

    membership.leave("b", 1)

    assert workers.fastest == 70.0


def test_a_worker_without_a_seat_is_awaited_from_the_first_look_and_anew_after_it_came_back():
    workers, membership = started("a")

    def awaited(now: float) -> list[str]:
        workers.note_seatless(now)
        return workers.awaited(now, patience=3)

    assert awaited(1.0) == []
    membership.leave("a", 1)
    assert [awaited(now) for now in (2.0, 5.0, 5.1)] == [["a"], ["a"], []]

    incarnation = membership.join("a", False, 6.0)
    assert awaited(6.0) == ["a"], "it is on its way"
    membership.seat("a", incarnation, 0, None, Clocks(), 6.0)
    assert awaited(6.0) == []
    membership.leave("a", 2)

    assert [awaited(now) for now in (7.0, 10.0, 10.1)] == [["a"], ["a"], []]
    workers.finished.add("a")
    assert awaited(7.0) == []


def test_all_have_finished_when_nobody_who_ever_joined_is_missing():
    workers, _ = started("a", "b")

    workers.finished.add("a")
    assert workers.unfinished == ["b"]
    workers.finished.add("b")

    assert workers.unfinished == []


def test_a_restarted_chief_shows_members_before_they_beat_again():
    workers, membership = started("a", "b")
    workers.finished.add("b")
    membership.leave("b", 1, finished=True)
    state = json.loads(json.dumps([membership.state(), workers.state()]))
    restored = Membership(4, 15.0, rounds=False)
    again = Workers(restored)

    restored.restore(state[0], 9.0)
    again.restore(state[1], 9.0)

    assert again.reports == {"a": WorkerReport(phase="unheard", seen=9.0)}
    assert (again.founders, again.finished) == ({"a": 1, "b": 1}, {"b"})
    assert again.local_models == ["host:a", "host:b"]


def test_a_worker_in_whose_process_sets_have_another_order_is_refused_also_after_a_restart():
    workers, membership = started("worker-0", "worker-1")
    workers.compare_hash("worker-0", 7)
    again = Workers(membership)
    again.restore(json.loads(json.dumps(workers.state())), 9.0)

    again.compare_hash("worker-0", 7)
    with pytest.raises(ConfigError, match=r"worker-1 orders sets in another way .* Set PYTHONHASHSEED to the same"):
        again.compare_hash("worker-1", 8)

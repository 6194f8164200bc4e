"""What a worker with a stop signal may still push."""

import threading

import pytest

from paceline.core.errors import Stopped
from paceline.worker import parting as partings
from paceline.worker.parting import Parting


def told(can_push: bool = True) -> Parting:
    """That of a worker that got a stop signal."""
    stop = threading.Event()
    stop.set()
    return Parting(stop, can_push)


def test_a_worker_without_a_signal_pushes_as_often_as_it_likes() -> None:
    parting = Parting(threading.Event(), can_push=True)

    assert [parting.begin_push() for _ in range(3)] == [False] * 3
    parting.check(owes=False)
    assert not parting.awaits_answer()


def test_a_worker_that_leaves_alone_pushes_once_more() -> None:
    parting = told()
    parting.hear(True)

    parting.check(owes=True)
    assert parting.begin_push()
    assert parting.has_time()
    with pytest.raises(Stopped):
        parting.check(owes=True)
    with pytest.raises(Stopped):
        parting.begin_push()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_worker_pushes_nothing_where_the_whole_run_stops_or_nobody_says_so(
    is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partings, "_PATIENCE", 0.01)
    parting = told()
    if is_answered:
        parting.hear(False)

    assert parting.awaits_answer() is not is_answered
    with pytest.raises(Stopped):
        parting.begin_push()


def test_who_has_no_server_to_push_to_asks_nobody() -> None:
    parting = told(can_push=False)

    assert not parting.awaits_answer()
    with pytest.raises(Stopped):
        parting.begin_push()


def test_a_worker_that_owes_nothing_leaves_at_once() -> None:
    with pytest.raises(Stopped):
        told().check(owes=False)


def test_a_long_step_leaves_time_for_its_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partings, "_LONGEST", 0.0)
    parting = told()
    parting.hear(True)
    assert not parting.has_time()

    assert parting.begin_push()
    assert parting.has_time()

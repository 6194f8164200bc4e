"""Deaths in a row count; a process that got further since its last start begins to count again."""

from pathlib import Path

import pytest

from paceline.launch.supervise.children import Child
from paceline.launch.supervise.launcher import Progress
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus


def child(name: str, restarts: int = 3) -> Child:
    return Child(name, name.split("-")[0], [], Path("log"), {}, restarts)


def deaths(one: Child, progress: Progress, reached: list[StatusReply]) -> int:
    """How often it is started again where each of its processes dies after this status."""
    for starts, status in enumerate(reached):
        progress.note(status)
        one.gets_on(progress.of(one))
        if not one.restarts_left:
            return starts
        one.restarts_left -= 1
        one.got_to = progress.of(one)
    return len(reached)


def at(examples: int, clock: int = 0) -> StatusReply:
    return StatusReply(examples=examples, workers=[WorkerStatus(worker="worker-1", clock=clock)])


def test_a_server_that_is_killed_again_and_again_while_training_goes_on_is_always_started_again() -> None:
    assert deaths(child("server-0"), Progress(), [at(100 * n) for n in range(1, 20)]) == 19


def test_a_server_that_dies_without_any_progress_is_started_three_times() -> None:
    assert deaths(child("server-0"), Progress(), [at(100)] * 9) == 3


def test_what_a_chief_had_counted_before_its_death_is_no_progress() -> None:
    assert deaths(child("server-0"), Progress(), [at(100), *[at(40), at(90)] * 5]) == 3


def test_a_worker_is_measured_by_its_own_clock() -> None:
    others_go_on = [at(100 * n, clock=5) for n in range(1, 20)]

    assert deaths(child("worker-1"), Progress(), others_go_on) == 3
    assert deaths(child("worker-1"), Progress(), [at(100, clock=n) for n in range(1, 20)]) == 19


@pytest.mark.parametrize("name", ["server-1", "worker-1"])
def test_what_is_gone_for_good_or_must_not_be_started_again_stays_so(name: str) -> None:
    lost, never = child(name), child(name, restarts=0)
    lost.never_again()

    assert deaths(lost, Progress(), [at(100, clock=4)]) == 0
    assert deaths(never, Progress(), [at(100, clock=4)]) == 0

"""Cores of a machine, dealt to its workers."""

import pytest

from paceline.launch.this_machine import processors
from paceline.launch.this_machine.processors import threads_each


@pytest.mark.parametrize(
    ("workers", "given", "threads"), [(2, None, 4), (3, None, 2), (16, None, 1), (1, 4, 4), (2, 64, 4), (0, None, 8)]
)
def test_workers_share_the_cores_or_those_that_their_job_has(
    workers: int, given: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "cores", lambda: 8)
    assert threads_each(workers, given) == threads

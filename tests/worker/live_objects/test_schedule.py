"""A live training's scheduler follows the run."""

import pytest

pytest.importorskip("torch")
from paceline.worker.live_objects.steps import Schedule


class Scheduler:
    """Counts its steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


def test_it_steps_up_to_where_the_run_is_and_never_twice() -> None:
    scheduler = Scheduler()
    schedule = Schedule(scheduler)
    seen = []
    for place in (0, 1, 1, 2, 7):  # 7: a worker that was started again
        schedule.reach(place)
        seen.append(scheduler.steps)
    assert seen == [0, 1, 1, 2, 7]


def test_without_a_scheduler_the_rate_stays() -> None:
    Schedule(None).reach(3)

"""How long a run's processes have after its end, and what is said of those that fail then."""

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.launch.supervise.processes import Processes


class Ending:
    """A process that runs for this number of looks, and then has this exit code."""

    def __init__(self, name: str, looks: int, code: int = 0) -> None:
        self.name = name
        self.role = name.split("-")[0]
        self.code = code
        self._looks = looks

    @property
    def running(self) -> bool:
        self._looks -= 1
        return self._looks >= 0

    def poll(self) -> int | None:
        return None if self._looks > 0 else self.code

    def how_it_ended(self) -> str:
        return f"ended with exit code {self.code}"

    def tail(self) -> str:
        return " Error"


def ended(*children: Any, are_scripts: bool) -> list[str]:
    """What is said while these end; there is no time to wait for any."""
    said: list[str] = []
    processes = object.__new__(Processes)
    vars(processes).update(
        _children=list(children), _signals=SimpleNamespace(seen=False), _say=said.append, _printed=[]
    )
    processes.let_end(0.0, are_scripts)
    return said


@pytest.mark.parametrize("are_scripts", [False, True])
def test_an_evaluator_that_fails_after_the_end_is_told(are_scripts: bool) -> None:
    assert ended(Ending("worker-0", 0), Ending("evaluator", 0, 3), are_scripts=are_scripts) == [
        "evaluator ended with exit code 3 after the end; its model may be missing. It said: Error"
    ]


def test_scripts_have_the_time_that_they_need_after_their_training() -> None:
    late = Ending("worker-1", 3)

    assert ended(Ending("worker-0", 0), late, are_scripts=True) == [
        "The training is over; the script of worker-1 still runs. Ctrl-C ends it."
    ]
    assert not late.running


def test_a_script_that_fails_after_its_training_is_told() -> None:
    assert ended(Ending("worker-0", 0, 1), Ending("worker-1", 0), are_scripts=True) == [
        "worker-0 ended with exit code 1 after the end. It said: Error"
    ]
    assert ended(Ending("worker-0", 0, 1), are_scripts=False) == []

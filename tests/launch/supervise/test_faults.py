"""Faults of a local run, in virtual time: what processes get and when, once, and what is kept of it."""

import signal
from typing import Any

import pytest

from paceline.launch.folder.audit import Lost
from paceline.launch.supervise.faults import Faults, Inflicted


class Process:
    """Notes the signals that it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 1
        self.running = True
        self.got: list[str] = []

    def signal(self, number: int) -> None:
        self.got.append(signal.Signals(number).name)

    def end(self, why: str) -> None:
        self.got.append(why)
        self.running = False


class Run:
    """A chief that answers every half second."""

    def __init__(self, *texts: str, before: list[dict[str, Any]] | None = None, at: float = 0.0) -> None:
        self.said: list[str] = []
        self.noted: list[Any] = []
        self.faults = Faults(texts, before or [], self.said.append, self.noted.append)
        self.processes: Any = [Process("server-0"), Process("worker-1")]
        self.at = at

    def to(self, seconds: float) -> None:
        while self.at < seconds:
            self.faults.hear(self.at, 50 + self.at)
            self.faults.inflict(self.processes, 50 + self.at)
            self.at += 0.5

    @property
    def got(self) -> list[list[str]]:
        return [process.got for process in self.processes]


def test_a_kill_comes_once_at_its_time_and_says_why() -> None:
    run = Run("kill server-0@3s")
    run.to(3)
    assert run.got == [[], []]
    run.to(4)
    run.processes[0].running, run.processes[0].pid = True, 2
    run.to(9)

    assert run.got == [["was killed at 3.0 s by the fault 'kill server-0@3s'"], []]
    assert run.said == ["fault: kill server-0@3s, at 3.0 s"]
    assert run.noted == [[{"fault": "kill server-0@3s", "at": 3.0, "lasted": None, "waited": None}]]
    assert [str(each) for each in run.faults.end({})] == [
        "kill server-0@3s: at 3.0 s, the process ran again after 1.0 s"
    ]


def test_a_process_that_is_away_is_killed_when_it_is_back() -> None:
    run = Run("kill server-0@3s")
    run.processes[0].running = False
    run.to(5)
    assert run.got == [[], []]
    run.processes[0].running = True
    run.to(6)
    assert len(run.got[0]) == 1


def test_a_frozen_process_is_thawed() -> None:
    run = Run("freeze worker-1@1s:2s")
    run.to(2)
    assert run.got == [[], ["SIGSTOP"]]
    run.to(9)

    assert run.got == [[], ["SIGSTOP", "SIGCONT"]]
    assert run.faults.end({})[0].lasted == 2.0


def test_what_took_the_place_of_a_frozen_process_is_left_alone() -> None:
    run = Run("freeze server-0@1s:5s")
    run.to(2)
    run.processes[0].pid = 2
    run.to(9)

    assert run.got[0] == ["SIGSTOP"]
    assert run.faults.end({})[0].lasted == pytest.approx(1.0)


def test_what_is_frozen_at_the_end_of_the_run_is_thawed_to_end() -> None:
    run = Run("freeze worker-1@1s:60s")
    run.to(2)
    run.faults.thaw(run.processes)

    assert run.got == [[], ["SIGSTOP", "SIGCONT"]]


def test_a_resumed_run_skips_what_has_happened_and_what_it_has_passed() -> None:
    kept = {"fault": "kill server-0@3s", "at": 3.1, "lasted": 0.5, "waited": None}
    run = Run("kill server-0@3s", "kill worker-1@4s", "kill worker-1@20s", before=[kept], at=10.0)
    run.to(25)

    assert run.got == [[], ["was killed at 20.0 s by the fault 'kill worker-1@20s'"]]
    assert run.said[0] == "fault 'kill worker-1@4s' is left out: the run was at 10 s when it was resumed"
    assert run.faults.end({})[0] == Inflicted.of(kept)


def test_a_link_tells_how_long_its_worker_waited() -> None:
    run = Run("link worker-1=1Mbit@1s:2s", "kill worker-1@60s")
    run.to(5)

    assert run.got == [[], []]
    assert [str(each) for each in run.faults.end({"worker-1": {"link_seconds": 1.25}})] == [
        "link worker-1=1Mbit@1s:2s: at 1.0 s, the worker waited 1.2 s for it",
        "kill worker-1@60s: did not happen, since the run ended before",
    ]


def test_what_is_lost_is_told_in_numbers() -> None:
    assert str(Lost(4804, 0)) == "nothing; the servers' last snapshots have all 4,804 acknowledged pushes"
    assert str(Lost(4804, 12, ["x"])) == "12 of 4,804 acknowledged pushes are not in the servers' last snapshots; x"

"""Faults that a process inflicts on itself, in virtual time; and one for real."""

import os
import subprocess
import sys
from pathlib import Path

from paceline.core.fault import Fault, faults_of
from paceline.rpc.self_inflicted import KEPT, SelfInflicted

TEXTS = ["kill server-0@3s", "freeze server-0@5s:2s"]


class Process:
    """One with faults, in a run whose chief answers every half second."""

    def __init__(self, texts: list[str], folder: Path | None = None) -> None:
        self.said: list[str] = []
        self.got: list[Fault] = []
        self.faults = SelfInflicted(faults_of(texts), folder, self.said.append, self.got.append)

    def hears(self, begin: float, end: float) -> list[str]:
        """What it gets while the run goes from one training time to the other."""
        self.got.clear()
        while begin <= end:
            self.faults.look(begin, 70 + begin)
            begin += 0.5
        return [fault.text for fault in self.got]


def test_each_fault_comes_once_at_its_time() -> None:
    process = Process([*TEXTS, "link worker-0=1Mbit"])

    assert process.hears(0, 2.5) == []
    assert process.hears(3, 4) == TEXTS[:1]
    assert process.hears(4.5, 9) == TEXTS[1:]
    assert not process.faults
    assert process.said == ["fault: kill server-0@3s, at 3.0 s", "fault: freeze server-0@5s:2s, at 5.0 s"]


def test_time_goes_on_while_the_chief_is_away() -> None:
    process = Process(TEXTS)
    process.hears(0, 2)
    process.faults.look(None, 70 + 3.5)

    assert [fault.text for fault in process.got] == TEXTS[:1]


def test_one_that_was_killed_is_not_killed_again() -> None:
    Process(TEXTS).hears(0, 3)
    after = Process(TEXTS)

    assert after.hears(3.5, 4.5) == []
    assert after.said == ["fault 'kill server-0@3s' is left out: the run was at 4 s when this process came"]
    assert after.hears(5, 6) == TEXTS[1:]


def test_a_chief_that_was_killed_is_not_killed_again_though_its_time_goes_back(tmp_path: Path) -> None:
    Process(TEXTS, tmp_path).hears(0, 3)
    after = Process(TEXTS, tmp_path)

    assert (tmp_path / KEPT).read_text() == "kill server-0@3s\n"
    assert after.hears(1, 9) == TEXTS[1:]


FROZEN = """
from paceline.core.fault import read_fault
from paceline.rpc.self_inflicted import send
print("before", flush=True)
send(read_fault("freeze worker-0@1s:1s"))
print("after", flush=True)
input()
"""


def test_a_process_freezes_itself_for_a_while() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FROZEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as done:
        assert done.stdout is not None
        assert done.stdout.readline() == "before\n"
        # where this process comes too late to see it stand still, the kernel says that it has gone on
        seen = os.waitid(os.P_PID, done.pid, os.WSTOPPED | os.WCONTINUED | os.WNOWAIT)
        assert seen is not None
        assert seen.si_code in (os.CLD_STOPPED, os.CLD_CONTINUED)

        assert done.stdout.readline() == "after\n"
        done.communicate("\n")
        assert done.returncode == 0

"""Faults that a process inflicts on itself, in virtual time; and one for real. Then signals that come at a bad moment."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paceline.core.fault import Fault, faults_of
from paceline.rpc.process import SignalEvent
from paceline.rpc.self_inflicted import KEPT, SelfInflicted
from tests.support.tree import ROOT

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
        assert done.stdout.readline() == "before\n"
        # where this process comes too late to see it stand still, the kernel says that it has gone on
        seen = os.waitid(os.P_PID, done.pid, os.WSTOPPED | os.WCONTINUED | os.WNOWAIT)
        assert seen.si_code in (os.CLD_STOPPED, os.CLD_CONTINUED)

        assert done.stdout.readline() == "after\n"
        done.communicate("\n")
        assert done.returncode == 0


MANY_SIGNALS = """
import signal
from paceline.rpc.process import SignalEvent

events = [SignalEvent()]
seen = []

def stop(*_):
    seen.append(1)
    events[-1].set()

signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
while len(seen) < 300:
    while not events[-1].wait(0.0001):
        pass
    events.append(SignalEvent())
    events.pop(0)
signal.setitimer(signal.ITIMER_REAL, 0)
print("went on")
"""


def test_a_signal_at_any_moment_of_a_wait_ends_the_wait_and_no_process_stands_still() -> None:
    """`threading.Event` does here within a second or so."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_SIGNALS], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )

    assert done.stdout == "went on\n"


def test_it_wakes_all_threads_that_wait_and_stays_set() -> None:
    event, woken = SignalEvent(), threading.Semaphore(0)
    threads = [threading.Thread(target=lambda: event.wait() and woken.release()) for _ in range(3)]
    for thread in threads:
        thread.start()

    event.set()

    for thread in threads:
        assert woken.acquire(timeout=60)
        thread.join()
    assert event.is_set()
    assert event.wait(0)


@pytest.mark.parametrize("timeout", [0, 0.001, -1])
def test_a_wait_ends_without_it(timeout: float) -> None:
    event = SignalEvent()

    assert not event.wait(timeout)
    assert not event.is_set()


def test_it_may_be_set_more_often_than_a_pipe_holds() -> None:
    event = SignalEvent()
    for _ in range(100_000):
        event.set()

    assert event.wait()

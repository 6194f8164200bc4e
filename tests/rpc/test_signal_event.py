"""What a signal's handler sets: no process may stand still because a signal came at a bad moment."""

import subprocess
import sys
import threading

import pytest

from paceline.rpc.process import SignalEvent
from tests.support.tree import ROOT

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

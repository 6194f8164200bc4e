"""Faults that a process inflicts on itself, where no launcher does it, as in a pod."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.core.fault import Fault, RunClock, faults_of
from paceline.core.settings.config import Config
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import call, open_channel
from paceline.v1.run_service_pb2 import StatusRequest
from paceline.v1.run_service_pb2_grpc import RunServiceStub

EVERY = 0.1
"""Seconds between two looks at the run's time."""
PATIENCE = 2.0
"""Seconds that the chief has for an answer."""
KEPT = "inflicted"
"""File of a server's folder: the faults that it has had, a line each."""
SENDER = """
import json, os, sys, time
for wait, number in json.loads(sys.argv[2]):
    time.sleep(wait)
    os.kill(int(sys.argv[1]), number)
"""
"""A program that sends a process that stands still what wakes it."""


class SelfInflicted:
    """Of one process. A fault whose time had passed when the process came is left out, so each happens once. A server keeps
    which it has had, since the chief's time goes back to its snapshot when it is killed itself. Not thread-safe."""

    def __init__(
        self, faults: Sequence[Fault], folder: Path | None, say: Callable[[str], None], send: Callable[[Fault], None]
    ) -> None:
        """`folder`: of a server; `send`: does what a fault says to this process."""
        self._kept = folder and folder / KEPT
        had = self._kept.read_text().splitlines() if self._kept and self._kept.exists() else []
        self._left = [fault for fault in faults if fault.signals and fault.text not in had]
        self._say = say
        self._send = send
        self._clock = RunClock()

    def __bool__(self) -> bool:
        """Whether any is to come."""
        return bool(self._left)

    def look(self, seconds: float | None, now: float) -> None:
        """Inflicts what is due. `seconds` and `now`: as RunClock.hear."""
        is_first = self._clock.read(now) < 0
        self._clock.hear(seconds, now)
        run = self._clock.read(now)
        due = [fault for fault in self._left if fault.begins <= run]
        self._left = [fault for fault in self._left if fault not in due]
        for fault in due:
            if is_first and run:
                self._say(f"fault {fault.text!r} is left out: the run was at {run:.0f} s when this process came")
                continue
            self._say(f"fault: {fault.text}, at {run:.1f} s")
            if self._kept:
                with self._kept.open("a") as kept:
                    kept.write(f"{fault.text}\n")
            self._send(fault)


def inflict_own(
    config: Config,
    name: str,
    seconds: Callable[[], float | None],
    say: Callable[[str], None],
    folder: Path | None = None,
) -> None:
    """Begins to look after this process's faults, in a thread, if it has any. `seconds`: the run's training time; None while
    it is not known; `folder`: of a server."""
    own = SelfInflicted(faults_of(config.faults, name), folder, say, send)

    def look() -> None:
        while own:
            own.look(seconds(), time.monotonic())
            time.sleep(EVERY)

    if own:
        threading.Thread(target=look, name="faults", daemon=True).start()


def told_by(chief: str, credentials: Credentials) -> Callable[[], float | None]:
    """Asks the chief (host:port) for the run's training time."""

    @functools.cache
    def service() -> RunServiceStub:
        return RunServiceStub(open_channel(chief, credentials))

    def seconds() -> float | None:
        with suppress(PacelineError):
            return float(call(service().Status, StatusRequest(), timeout=PATIENCE).seconds)
        return None

    return seconds


def send(fault: Fault) -> None:
    """Sends this process what the fault says. What comes behind the first signal is sent by another process, since this one
    may stand still."""
    later = [(after.at - before.at, int(signal.Signals[after.name])) for before, after in pairwise(fault.signals)]
    if later:
        command = [sys.executable, "-I", "-S", "-c", SENDER, str(os.getpid()), json.dumps(later)]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    os.kill(os.getpid(), signal.Signals[fault.signals[0].name])

"""Python processes by fork from one that has imported what they import: they start in 0.1 s instead of one to ten.

`fork_program.py` is the program that forks. What it starts is a process as any other, with its own pid, process group, signals,
threads, log and exit code; only the imports were made before. Fork is safe, because a process that only imports has no threads,
no gRPC channel and no GPU. A process that was forked makes its own forker by a fork of itself, as long as it has neither."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from paceline.launch.forks import fork_program

SHARDER = ("paceline.sharder.sharding",)
"""What the sharder imports: all others need most of it."""
SERVERS = ("grpc_health.v1.health", "paceline.server.server")
"""What servers import besides."""
WORKERS = (
    "paceline.worker.module_worker",
    "paceline.worker.scoring.module_scorer",
    "paceline.worker.training.model_and_gradient",
    "paceline.worker.scoring.scorer",
)
"""What workers and evaluators import besides: torch too, which takes seconds."""
LINEAR = (
    "paceline.worker.linear.linear_worker",
    "paceline.worker.scoring.linear_scorer",
    "paceline.worker.before_run.check_linear",
)
"""What workers and the evaluator of a linear model import besides: no torch."""
ROWS = ("scipy.sparse",)
"""What the sharder, workers and the evaluator of a linear model import besides, where it is installed."""
SCRIPTS = ("paceline.api.script",)
"""What a script's workers import besides."""
OPTIMIZER = ("paceline.worker.script.wrapped_optimizer",)
"""As a library, since torch may be missing: with it the first optimizer of torch is made before the fork."""
_PATIENCE = 10.0
"""Longest that a fork may take (seconds)."""
_AN_END = 1.0
"""Longest that its end is waited for before it is killed (seconds)."""
_ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""So that numpy starts no threads when it is loaded."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What a process that forks imports."""

    modules: tuple[str, ...]
    libraries: Sequence[str] = ()
    """More of them, each of which may be missing."""


class Forked:
    """One child: `pid`, `poll` and `wait` as of subprocess.Popen."""

    def __init__(self, forker: "Forker", pid: int) -> None:
        self._forker = forker
        self.pid = pid
        self.code: int | None = None
        self.peak = 0
        """Its largest memory, once it has ended (bytes)."""

    def poll(self) -> int | None:
        self._forker.hear()
        return self.code

    def wait(self, timeout: float) -> int:
        self._forker.hear(lambda: self.code is not None, timeout)
        if self.code is None:
            raise subprocess.TimeoutExpired("forked", timeout)
        return self.code


class Forker:
    """The process that forks; it ends, and its children with it, when this process does. For the main thread: the kernel ends
    it with the thread that started it."""

    def __init__(self, loads: Loads, environment: Mapping[str, str], before: "Forker | None" = None) -> None:
        """`environment`: what modules see while they load; `before`: what this one is forked from once that has loaded its own,
        and ends with. OSError: it can't be started."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.RLock()
        self.before = before
        self._children: dict[int, Forked] = {}
        self._started: Forked | None = None
        self._is_ready = False
        self.is_gone = False
        """Whether it has ended, and its children with it."""
        self.pid = 0
        """0: not known yet."""

        environment = {**environment, **_ALONE}
        with theirs:
            if before is None:
                self.pid = fork_program.begin(theirs.fileno(), environment)
            else:
                before._send(fork_program.NEXT, theirs.fileno())
        if not self._send(json.dumps({"environment": environment, **asdict(loads)}).encode()):
            self._kill()

    @property
    def is_ready(self) -> bool:
        """Whether all is loaded, or will never be: `start` does not have to wait for it any more."""
        self.hear()
        return self._is_ready

    def start(
        self,
        arguments: list[str],
        log: Path | None,
        folder: Path,
        environment: Mapping[str, str],
        cores: Collection[int] = (),
        objects: int | None = None,
    ) -> Forked | None:
        """Starts one; None where it can't fork. `arguments` are those of Python: -m and a module, or a file, and the program's
        own. Its words go to `log`, or to this process's stderr. It uses only these `cores`, if there are any. It gets the
        descriptor `objects` under the same number."""
        request = {
            "arguments": arguments,
            "log": str(log or ""),
            "folder": str(folder),
            "environment": dict(environment),
            "cores": [*cores],
            "objects": objects,
        }
        with self._lock:
            if not self._send(json.dumps(request).encode(), objects):
                return None
            self.hear(lambda: self._is_ready)
            self.hear(lambda: self._started, _PATIENCE)
            if self._started is None:
                self._kill()  # or it would start it later, too
            found, self._started = self._started, None
            return found

    def hear(self, until: Callable[[], object] = lambda: True, seconds: float = inf) -> None:
        """Notes what it has told so far, and goes on `until` something is so, or it is gone, or the time is over."""
        end = time.monotonic() + seconds
        with self._lock:
            self._note(0)
        while not until() and not self.is_gone and (left := end - time.monotonic()) > 0:
            with self._lock:  # a short while each, for other threads
                self._note(min(left, 0.1))

    def close(self) -> None:
        """Ends it, all children and what these have started, a child too of which it has not told yet."""
        with self._lock:
            if self.is_ready and not self.is_gone:
                self._channel.shutdown(socket.SHUT_WR)
                self.hear(lambda: self.is_gone, _AN_END)
            self._kill()
            self._channel.close()

    def _send(self, message: bytes, descriptor: int | None = None) -> bool:
        """Whether it can hear that; a message may be too large."""
        try:
            socket.send_fds(self._channel, [message], [] if descriptor is None else [descriptor])
        except OSError:
            return False
        return True

    def _note(self, patience: float) -> None:
        """What it has told since; waits that long for the first of it (seconds)."""
        while not self.is_gone:
            try:
                self._channel.settimeout(patience)
                told = json.loads(self._channel.recv(4096))
            except (BlockingIOError, TimeoutError):
                return
            except (OSError, ValueError):  # its end, or nothing that it says
                self._kill()
                return
            patience = 0
            self._is_ready = True
            if "forks" in told:
                self.pid = told["forks"]
            elif "started" in told:
                self._started = self._children[told["started"]] = Forked(self, told["started"])
            elif child := self._children.pop(told["ended"], None):
                child.code, child.peak = told["code"], told["peak"]

    def _kill(self) -> None:
        """Ends it at once, and the kernel its children with it; what still loads is left to the end of the one before it."""
        if self.is_gone:
            return
        if self.pid:
            with suppress(ProcessLookupError):  # the one before it has seen its end
                os.kill(self.pid, signal.SIGKILL)
        if self.before is None:
            with suppress(ChildProcessError):  # something else here waits for all children
                os.waitpid(self.pid, 0)
        for child in self._children.values():
            child.code = -signal.SIGKILL
        self.is_gone = self._is_ready = True

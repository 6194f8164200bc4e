"""Python processes by fork from one that has imported what they import: they start in 0.1 s instead of one to ten.

`fork_program.py` is the program that forks. What it starts is a process as any other, with its own pid, process group, signals,
threads, log and exit code; only the imports were made before. Fork is safe, because a process that only imports has no threads,
no gRPC channel and no GPU. A process that was forked makes its own forker by a fork of itself, as long as it has neither."""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TextIO

from paceline.launch.forks import fork_program
from paceline.launch.this_machine.end_with_parent import tethered

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
    "paceline.worker.checking.check_linear",
)
"""What workers and the evaluator of a linear model import besides: no torch."""
ROWS = ("scipy.sparse",)
"""What the sharder, workers and the evaluator of a linear model import besides, where it is installed."""
SCRIPTS = ("paceline.api.train",)
"""What scripts with their own training loop import besides."""
OPTIMIZER = ("paceline.worker.script.wrapped_optimizer",)
"""What a whole script's workers import besides; with it the first optimizer of torch is made before the fork."""
_PATIENCE = 10.0
"""Longest that a fork may take (seconds)."""
_AN_END = 1.0
"""Longest that the end of a process is waited for that was killed (seconds)."""
_ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""So that numpy starts no threads when it is loaded."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What a process that forks imports."""

    modules: tuple[str, ...]
    libraries: Sequence[str] = ()
    """More of them, each of which may be missing."""

    def asked(self, then: Mapping[str, Any] | None) -> dict[str, Any]:
        """As the program is asked for it; `then`: what is forked afterwards."""
        return {"modules": self.modules, "libraries": self.libraries, "then": then}


class Forked:
    """One child, as subprocess.Popen has it."""

    def __init__(self, forker: "Forker", pid: int) -> None:
        self._forker = forker
        self.pid = pid

    @property
    def peak(self) -> int:
        """Its largest memory, once it has ended (bytes)."""
        return self._forker.peaks.get(self.pid, 0)

    def poll(self) -> int | None:
        return self._forker.codes.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        with self._forker.changed:
            if not self._forker.changed.wait_for(lambda: self.pid in self._forker.codes, timeout):
                raise subprocess.TimeoutExpired("forked", timeout or 0)
        return self._forker.codes[self.pid]

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has just ended, and we hear of it later
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Process(Protocol):
    """The process that forks, as its `Forker` needs it."""

    @property
    def stdin(self) -> IO[str] | None: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Forker:
    """The process that forks; it ends, and its children with it, when this process does. `environment`: what modules see
    while they load; `libraries`: more of them, each of which may be missing; `inherited`: descriptors that all children get.
    `later`: what others load besides, each forked from the one before once that has loaded its own, and ending with it; then
    only the children of the last one get what is `inherited`.
    For the main thread: the kernel ends it with the thread that started it. OSError: it can't be started."""

    def __init__(
        self,
        modules: tuple[str, ...],
        environment: Mapping[str, str],
        libraries: Sequence[str] = (),
        inherited: Sequence[int] = (),
        later: Sequence[Loads] = (),
    ) -> None:
        ours: list[tuple[int, int]] = []
        then, handed = None, [*inherited]
        for each in reversed(later):
            (requests, written), (read, told) = os.pipe(), os.pipe()
            ours.insert(0, (written, read))
            handed = [requests, told, *handed]
            then = {"requests": requests, "told": told, "handed": handed, "stage": each.asked(then)}
        asked = Loads(modules, libraries).asked(then)
        process: _Process
        try:
            if fork_program.may_become():
                process = _Itself(asked, {**environment, **_ALONE}, handed)
            else:
                process = subprocess.Popen(
                    tethered(sys.executable, "-P", fork_program.__file__, json.dumps(asked)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**environment, **_ALONE},
                    text=True,
                    bufsize=1,
                    start_new_session=True,
                    pass_fds=handed,
                )
        finally:
            for end in handed[: 2 * len(later)]:
                os.close(end)
        self._follow(process)
        self.next = _Next(self, ours) if ours else None

    def _follow(self, process: _Process) -> None:
        """Listens to what it tells."""
        self._process = process
        self.is_ready = False
        """Whether all is loaded, or will never be: `start` does not have to wait for it any more."""
        self.codes: dict[int, int] = {}
        self.peaks: dict[int, int] = {}
        self.changed = threading.Condition()
        self._alive: set[int] = set()
        self._started: list[int] = []
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        atexit.register(self.close)

    def start(
        self,
        arguments: list[str],
        log: Path | None,
        folder: Path,
        environment: Mapping[str, str],
        cores: Collection[int] = (),
    ) -> Forked | None:
        """`arguments` are those of Python: -m and a module, or a file, and the program's own; `log`: where its words go, None:
        to this process's stderr; `cores`: the only ones that it uses, if there are any. Gives None where it can't fork."""
        assert self._process.stdin is not None
        request = {
            "arguments": arguments,
            "log": str(log or ""),
            "folder": str(folder),
            "environment": dict(environment),
            "cores": [*cores],
        }
        with self.changed:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
            except (OSError, ValueError):  # it has ended, and the pipe may be closed
                return None
            self.changed.wait_for(lambda: self.is_ready)
            if not self.changed.wait_for(lambda: self._started or self._ended, _PATIENCE):
                self._process.kill()  # or it would start it later, too
                self.changed.wait_for(lambda: self._ended)
            return Forked(self, self._started.pop()) if self._started else None

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, and its children with it."""
        return self._ended

    def close(self) -> None:
        """Ends it, all children and what these have started, a child too of which it has not told yet."""
        atexit.unregister(self.close)
        if self.is_ready:
            assert self._process.stdin is not None
            with suppress(OSError):  # it has ended
                self._process.stdin.close()
            self._listener.join(_AN_END)
        self._process.kill()
        self._process.wait()
        self._listener.join(_AN_END)

    def _listen(self) -> None:
        requests, told = self._process.stdin, self._process.stdout
        assert requests is not None
        assert told is not None
        try:
            for line in told:
                self._note(json.loads(line))
        finally:
            self._process.kill()
            with self.changed:
                self._started.clear()
                self.codes |= dict.fromkeys(self._alive, -signal.SIGKILL)  # the kernel has ended them with it
                self._ended = self.is_ready = True
                self.changed.notify_all()
                told.close()
                with suppress(OSError):  # what nobody reads any more
                    requests.close()

    def _note(self, told: Mapping[str, int]) -> None:
        """One line of the process that forks."""
        with self.changed:
            if "started" in told:
                self.codes.pop(told["started"], None)
                self._alive.add(told["started"])
                self._started.append(told["started"])
            elif "ended" in told:
                self._alive.discard(told["ended"])
                self.peaks[told["ended"]] = told["peak"]
                self.codes[told["ended"]] = told["code"]
            self.is_ready = True
            self.changed.notify_all()


class _Next(Forker):
    """One that another one has forked."""

    def __init__(self, before: Forker, pipes: Sequence[tuple[int, int]]) -> None:
        """`pipes`: where this one and those after it are asked, and tell."""
        (requests, told), *others = pipes
        self._follow(_Grandchild(before, os.fdopen(requests, "w", buffering=1), os.fdopen(told)))
        self.next = _Next(self, others) if others else None

    def _note(self, told: Mapping[str, int]) -> None:
        if "forker" in told:
            assert isinstance(self._process, _Grandchild)
            self._process.forked = Forked(self._process.before, told["forker"])
        super()._note(told)


class _Itself:
    """A fork of this process, which was forked itself and has loaded the most: nothing of that is loaded again."""

    def __init__(self, asked: dict[str, Any], environment: Mapping[str, str], handed: Sequence[int]) -> None:
        """`handed`: the descriptors that the fork keeps."""
        (requests, written), (read, told) = os.pipe(), os.pipe()
        this = os.getpid()
        for printed in (sys.stdout, sys.stderr):
            printed.flush()  # or the fork would print it again
        self.pid = os.fork()
        if not self.pid:
            fork_program.become(this, (requests, told), handed, environment, asked)
        os.close(requests)
        os.close(told)
        self.stdin = os.fdopen(written, "w", buffering=1)
        self.stdout = os.fdopen(read)
        self._reaping = threading.Lock()
        self._code: int | None = None

    def kill(self) -> None:
        with self._reaping:
            if self._code is None:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """However long it takes: it is waited for once it was killed."""
        with suppress(ChildProcessError):  # another thread has waited for it
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self._code


@dataclass(slots=True)
class _Grandchild:
    """What `_Next` speaks with."""

    before: Forker
    """The one that has forked it."""
    stdin: TextIO
    stdout: TextIO
    forked: Forked | None = None
    """None: it still loads, and is left to that one's end."""

    def kill(self) -> None:
        if self.forked is not None and not self.before.is_gone:
            self.forked.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Until the one that has forked it has seen its end: otherwise its CPU seconds would not count."""
        with suppress(subprocess.TimeoutExpired):
            if self.forked is not None and not self.before.is_gone:
                return self.forked.wait(_AN_END)
        return -signal.SIGKILL

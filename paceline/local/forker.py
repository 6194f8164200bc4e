"""Python processes by fork from one that has imported what they import: they start in 0.1 s instead of one to ten.

This file is both sides: `Forker`, and the program that forks (`python -P forker.py MODULE ... --beside LIBRARY ...`). What it
starts is a process as any other, with its own pid, process group, signals, threads, log and exit code; only the imports were
made before. Fork is safe, because a process that only imports has no threads, no gRPC channel and no GPU."""

import atexit
import gc
import io
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.local import end_with_parent
from paceline.own_files import show_own

SERVERS = ("grpc_health.v1.health", "paceline.server.server", "paceline.sharder.sharding")
"""What servers import, and the sharder, which needs little more."""
WORKERS = (
    "paceline.worker.module_worker",
    "paceline.worker.scoring.module_scorer",
    "paceline.worker.training.model_and_gradient",
    "paceline.worker.scoring.scorer",
)
"""What workers and evaluators import: torch too, which takes seconds."""
LINEAR = (
    "paceline.worker.linear.linear_worker",
    "paceline.worker.scoring.linear_scorer",
    "paceline.worker.checking.check_linear",
)
"""What workers and the evaluator of a linear model import: no torch."""
ROWS = ("scipy.sparse",)
"""What the sharder, workers and the evaluator of a linear model import beside, where it is there."""
SCRIPTS = ("paceline.api", "paceline.worker.own_loop", "paceline.worker.checking.rehearsal")
"""What scripts with a training loop of their own import besides."""
_PATIENCE = 10.0
"""Longest that a fork may take (seconds)."""
_ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""So that numpy starts no threads when it is loaded."""
_BESIDE = "--beside"
"""Between modules that must be there and others."""


# who wants processes
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
        with suppress(ProcessLookupError):  # it has just ended, and we are told of it later
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forker:
    """The process that forks; it ends, and its children with it, when this process does. `environment`: what modules see
    while they load; `libraries`: more of them, each of which may be missing; `inherited`: descriptors that all children get.
    For the main thread: the kernel ends it with the thread that started it. OSError: it can't be started."""

    def __init__(
        self,
        modules: tuple[str, ...],
        environment: Mapping[str, str],
        libraries: Sequence[str] = (),
        inherited: Sequence[int] = (),
    ) -> None:
        tethered = [sys.executable, "-I", "-S", end_with_parent.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*tethered, sys.executable, "-P", __file__, *modules, _BESIDE, *libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **_ALONE},
            text=True,
            bufsize=1,
            start_new_session=True,
            pass_fds=inherited,
        )
        self.is_ready = False
        """Whether all is loaded, or will never be: `start` does not have to wait for it any more."""
        self.codes: dict[int, int] = {}
        self.peaks: dict[int, int] = {}
        self.changed = threading.Condition()
        self._alive: set[int] = set()
        self._started: list[int] = []
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def start(
        self, arguments: list[str], log: Path | None, folder: Path, environment: Mapping[str, str]
    ) -> Forked | None:
        """`arguments` are those of Python: -m and a module, or a file, and the program's own; `log`: where its words go, None:
        to this process's stderr. Gives None where it can't fork."""
        assert self._process.stdin is not None
        request = {
            "arguments": arguments,
            "log": str(log or ""),
            "folder": str(folder),
            "environment": dict(environment),
        }
        with self.changed:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
            except OSError:  # it has ended
                return None
            self.changed.wait_for(lambda: self.is_ready)
            if not self.changed.wait_for(lambda: self._started or self._ended, _PATIENCE):
                self._process.kill()  # or it would start it later, too
                self.changed.wait_for(lambda: self._ended)
            return Forked(self, self._started.pop()) if self._started else None

    def close(self) -> None:
        """Ends it and all children."""
        atexit.unregister(self.close)
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._note(json.loads(line))
        finally:
            self._process.kill()
            with self.changed:
                self._started.clear()
                self.codes |= dict.fromkeys(self._alive, -signal.SIGKILL)  # the kernel has ended them with it
                self._ended = self.is_ready = True
                self.changed.notify_all()

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


# in the process that forks
def own_channel() -> int:
    """What stdout was, for `tell` alone: what modules print while they load goes to stderr."""
    channel = os.dup(1)
    os.dup2(2, 1)
    return channel


def tell(channel: int, **facts: int) -> None:
    os.write(channel, json.dumps(facts).encode() + b"\n")


def reap(channel: int, running: set[int]) -> None:
    """Tells who has ended."""
    for pid in list(running):
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            running.remove(pid)
            tell(channel, ended=pid, code=os.waitstatus_to_exitcode(status), peak=usage.ru_maxrss * 1024)


def next_child(channel: int) -> dict[str, Any]:
    """Forks once for each line until whoever writes them is gone; returns in the child, with what it is to run."""
    this = os.getpid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running, text = set[int](), b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        reap(channel, running)
        if 0 not in ready:
            continue
        more = os.read(0, 1 << 16)
        if not more:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        *lines, text = (text + more).split(b"\n")
        for line in lines:
            pid = os.fork()
            if not pid:
                os.setpgid(0, 0)
                end_with_parent.end_with(this)
                signal.set_wakeup_fd(-1)
                os.close(channel)
                os.close(woken)
                os.close(wake)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                request: dict[str, Any] = json.loads(line)
                return request
            with suppress(OSError):  # the child has done it itself
                os.setpgid(pid, pid)
            running.add(pid)
            tell(channel, started=pid)


def run(arguments: list[str], log: str, folder: str, environment: dict[str, str]) -> None:
    """In the child: becomes what `python -P ARGUMENTS` is; without a log it writes to stderr."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else os.dup(2)
    for target, source in ((0, nothing), (1, file), (2, file)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()  # otherwise all would pause for the same times, and draw the same numbers
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        run_program(arguments[1])
    else:
        sys.argv = arguments
        run_script(arguments[0])


def run_program(module: str) -> None:
    """Ends with what the module ends with, but leaves all memory to the kernel: to free what was loaded before the fork would
    take 0.4 s of CPU."""
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush_files()
    os._exit((code or 0) & 0xFF)


def flush_files() -> None:
    """What was written to files that nobody has closed. The garbage collector does not show those that were there before the
    fork, as stdout was."""
    for each in (sys.stdout, sys.stderr, *gc.get_objects()):
        if type(each) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            with suppress(OSError, ValueError):  # closed, or nobody reads it
                each.flush()


def run_script(file: str) -> None:
    """The file as Python runs it; what it fails with is shown as its own."""
    try:
        runpy.run_path(file, run_name="__main__")
    except Exception as error:
        show_own(error, file)
        sys.exit(1)


def main(modules: list[str], libraries: list[str]) -> None:
    channel = own_channel()
    gc.disable()  # nothing that modules make is garbage, and to look for it takes a sixth of the time
    try:
        for module in modules:
            import_module(module)
    except Exception:  # whatever needs it says so itself
        sys.exit(1)
    for library in libraries:
        with suppress(Exception):  # a file that needs it says so; or it is a name, and no module
            import_module(library)
    warm()
    gc.freeze()  # or the first collection in each child would copy every page
    gc.enable()
    for printed in (sys.stdout, sys.stderr):
        printed.flush()  # or each child would print it again
    if len(os.listdir("/proc/self/task")) > 1:  # a fork would lose them
        sys.exit(1)
    tell(channel, threads=1)
    run(**next_child(channel))


def warm() -> None:
    """The first compiled loop of a process takes 0.6 s."""
    import numpy as np

    from paceline.core import kernels

    values = np.zeros(1, np.float32)
    kernels.scale_into(values, values, 1.0)
    kernels.add_scaled(values, values, 1.0)
    kernels.mix(values, values, 0.5)
    kernels.all_finite(values)


if __name__ == "__main__":
    cut = sys.argv.index(_BESIDE)
    main(sys.argv[1:cut], sys.argv[cut + 1 :])

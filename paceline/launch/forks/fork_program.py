"""The process that a `Forker` speaks with, by a socket that it gets as its stdin. The first message says what it loads. Each
other one says what a fork of it is to run, or that the fork loads more and forks, too (`NEXT`).

It is `python -P fork_program.py PARENT`, or a fork of a process that was forked from one (`begin`)."""

import atexit
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from paceline.base.own_files import show_own
from paceline.launch.this_machine import end_with_parent
from paceline.launch.this_machine.leave import leave

NEXT = b"next"
_LARGEST = 1 << 20
"""More than a message can have (bytes); the kernel refuses it before."""


def begin(channel: int, environment: Mapping[str, str]) -> int:
    """Starts a process that forks, with `channel` as its stdin, and returns its pid. A process that was forked itself forks it,
    so that nothing is loaded again. OSError: it can't be started."""
    this = os.getpid()
    if not _may_fork():
        command = [sys.executable, "-P", __file__, str(this)]
        streams = [(os.POSIX_SPAWN_DUP2, channel, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        return os.posix_spawn(command[0], command, environment, file_actions=streams, setsid=True)
    for printed in (sys.stdout, sys.stderr):
        printed.flush()  # or the fork would print it again
    if not (pid := os.fork()):
        os.dup2(channel, 0)
        _close_others()
        _become(this)
    return pid


def _may_fork() -> bool:
    """Whether this process was forked by this program, and has no thread and no GPU that a fork would lose."""
    torch = sys.modules.get("torch")
    return sys.orig_argv[2:3] == [__file__] and _has_one_thread() and not (torch and torch.cuda.is_initialized())


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


def _become(parent: int) -> NoReturn:
    """In a fork of a process that has other work, which is the parent's: does what this program does."""
    this, code = os.getpid(), None
    atexit._clear()
    for each in signal.valid_signals():
        if callable(signal.getsignal(each)):
            signal.signal(each, signal.SIG_DFL)

    try:
        _run(**_serve(parent))
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        if os.getpid() == this:  # what files still have to be written is the parent's
            os._exit(1)
        leave(code)


def _serve(parent: int) -> dict[str, Any]:
    """Loads and forks until nobody writes messages any more, then ends the children and what they have started. Returns in a
    child, with what that is to run."""
    this = os.getpid()
    channel = _set_apart(parent)
    _load(**json.loads(channel.recv(_LARGEST)))
    _tell(channel, forks=this)

    running: set[int] = set()
    ends, wakes = _woken_by_ends()
    while True:
        ready, *_ = select.select([channel.fileno(), ends], [], [])
        if ends in ready:
            os.read(ends, _LARGEST)
            _reap(channel, running)
        if channel.fileno() not in ready:
            continue

        message, descriptors, *_ = socket.recv_fds(channel, _LARGEST, 1)
        if not message:
            _end(running)
        if not (pid := os.fork()):
            break
        with suppress(OSError):  # the child has done it itself
            os.setpgid(pid, pid)
        running.add(pid)
        if message != NEXT:
            _tell(channel, started=pid)
        for descriptor in descriptors:
            os.close(descriptor)

    channel.close()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(ends)
    os.close(wakes)
    if message == NEXT:
        os.dup2(descriptors[0], 0)
        os.close(descriptors[0])
        return _serve(this)
    os.setpgid(0, 0)
    end_with_parent.end_with(this)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return {**json.loads(message), "received": descriptors}


def _set_apart(parent: int) -> socket.socket:
    """Ends with the parent from now on, and not by a Ctrl-C; returns the socket, which no module that is loaded reads from or
    writes to by mistake."""
    with suppress(OSError):  # it leads its group already, and has no terminal
        os.setsid()
    end_with_parent.end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _woken_by_ends() -> tuple[int, int]:
    """A pipe that can be read once a child has ended. A handler alone would be late: Python calls it after the call that it
    waits in, and none ends if the signal comes just before."""
    ends, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ends, wakes


def _close_others() -> None:
    """All files but the first three."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with suppress(OSError):  # that of the list
                os.close(descriptor)


def _tell(channel: socket.socket, **facts: int) -> None:
    with suppress(OSError):  # nobody listens any more
        channel.send(json.dumps(facts).encode())


def _reap(channel: socket.socket, running: set[int]) -> None:
    """Tells who has ended."""
    for pid in list(running):
        try:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:  # of a library's waiting for any child
            continue
        if ended:
            running.remove(pid)
            _tell(channel, ended=pid, code=os.waitstatus_to_exitcode(status), peak=usage.ru_maxrss * 1024)


def _end(running: set[int]) -> NoReturn:
    """Ends the children and this process; all that they took counts as this one's then."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in running:
        with suppress(ProcessLookupError):  # it has made another group
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    for pid in running:
        os.waitpid(pid, 0)
    os._exit(0)


def _load(environment: Mapping[str, str], modules: list[str], libraries: list[str]) -> None:
    """Imports them; ends this process where a module fails, or where it could not fork afterwards."""
    os.environ.clear()
    os.environ.update(environment)

    gc.disable()  # nothing that modules make is garbage, and to look for it takes a sixth of the time
    try:
        for module in modules:
            import_module(module)
    except Exception:  # the code that needs it says so itself
        sys.exit(1)
    for library in libraries:
        with suppress(Exception):  # a file that needs it says so; or it is a name, and no module
            import_module(library)
    warm()

    gc.freeze()  # or the first collection in each child would copy every page
    gc.enable()
    for printed in (sys.stdout, sys.stderr):
        printed.flush()  # or each child would print it again
    if not _has_one_thread():  # a fork would lose the others
        sys.exit(1)


def warm() -> None:
    """Does once what each process would do at first use. Of the compiled loops the first one takes .3 s of CPU, each other one
    10 ms; linear models want five more, the sharder none. The first optimizer of torch takes 1.5 s."""
    if (kernels := sys.modules.get("paceline.core.kernels")) is not None:
        import numpy as np

        values = np.zeros(1, np.float32)
        kernels.scale_into(values, values, 1.0)
        kernels.add_scaled(values, values, 1.0)
        kernels.mix(values, values, 0.5)
        kernels.all_finite(values)
        if (linear := sys.modules.get("paceline.core.linear.linear_loops")) is not None:
            for name in ("add_support", "copy_at", "rebase", "find_margins", "step_fitted"):
                getattr(linear, name).load()
    if "paceline.worker.script.wrapped_optimizer" in sys.modules:
        import torch

        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def _run(
    arguments: list[str],
    log: str,
    folder: str,
    environment: dict[str, str],
    cores: list[int],
    objects: int | None,
    received: list[int],
) -> None:
    """In the child: becomes what `python -P ARGUMENTS` is; without a log it writes to stderr. `cores`: the only ones that it
    uses, if there are any; `objects`: the number under which it has the descriptor that it received."""
    if objects is not None and received != [objects]:
        os.dup2(received[0], objects)
        os.close(received[0])
    if cores:
        os.sched_setaffinity(0, cores)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else os.dup(2)
    for target in (1, 2):
        os.dup2(file, target)
    os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()  # otherwise all would pause for the same times, and draw the same numbers
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    run_line(arguments)


def run_line(arguments: list[str]) -> None:
    """Is what `python -P ARGUMENTS` is, in this process as it is now, and ends as that ends."""
    code: object = None
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            _run_script(arguments[0])
    except SystemExit as end:
        code = end.code
    leave(code)


def _run_script(file: str) -> None:
    """The file as Python runs it; what it fails with is shown as its own."""
    try:
        runpy.run_path(file, run_name="__main__")
    except Exception as error:
        show_own(error, file)
        sys.exit(1)


if __name__ == "__main__":
    _close_others()
    _run(**_serve(int(sys.argv[1])))

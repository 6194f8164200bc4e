"""The program that a `Forker` starts, and speaks with: `python -P fork_program.py JSON`, the arguments of `main`. A process
that it has forked becomes one by a fork (`become`), with all that is loaded."""

import atexit
import gc
import json
import os
import random
import runpy
import select
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from paceline.base.own_files import show_own
from paceline.launch.this_machine import end_with_parent
from paceline.launch.this_machine.leave import leave


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


def next_child(channel: int, running: set[int]) -> dict[str, Any]:
    """Forks once for each line until nobody writes them any more, then ends the children and what they have started; returns in
    the child, with what it is to run. `running`: the children that there are."""
    this = os.getpid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = b""
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
                with suppress(ProcessLookupError):  # the next stage, which has no group
                    os.killpg(pid, signal.SIGKILL)
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


def run(arguments: list[str], log: str, folder: str, environment: dict[str, str], cores: list[int]) -> None:
    """In the child: becomes what `python -P ARGUMENTS` is; without a log it writes to stderr. `cores`: the only ones that it
    uses, if there are any."""
    if cores:
        os.sched_setaffinity(0, cores)
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
    run_line(arguments)


def run_line(arguments: list[str]) -> None:
    """Is what `python -P ARGUMENTS` is, in this process as it is now."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        run_program(arguments[1])
    else:
        sys.argv = arguments
        run_script(arguments[0])


def run_program(module: str) -> None:
    """Ends with what the module ends with."""
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    leave(code)


def run_script(file: str) -> None:
    """The file as Python runs it; what it fails with is shown as its own."""
    try:
        runpy.run_path(file, run_name="__main__")
    except Exception as error:
        show_own(error, file)
        sys.exit(1)


def main(**stage: Any) -> None:
    channel, running = pass_on(own_channel(), **stage)
    tell(channel, forker=os.getpid())
    run(**next_child(channel, running))


def pass_on(
    channel: int, modules: list[str], libraries: list[str], then: dict[str, Any] | None
) -> tuple[int, set[int]]:
    """Loads what belongs to this stage and leaves the next one to another process; where this one tells, and its children."""
    load(modules, libraries)
    return (channel, set()) if then is None else divide(channel, **then)


def may_become() -> bool:
    """Whether this process was forked by this program, and has no thread and no GPU that a fork would lose."""
    torch = sys.modules.get("torch")
    return sys.orig_argv[2:3] == [__file__] and has_one_thread() and not (torch and torch.cuda.is_initialized())


def become(
    parent: int, ends: tuple[int, int], kept: Iterable[int], environment: Mapping[str, str], stage: dict[str, Any]
) -> NoReturn:
    """In a new fork: is from now on what this program is when it was started, and never returns. `ends`: the descriptors where
    it is asked, and where it tells; `kept`: those that it keeps besides, of all that it has."""
    this, code = os.getpid(), None
    atexit._clear()  # what belongs to the parent's end
    try:
        os.setsid()
        end_with_parent.end_with(parent)
        for each in signal.valid_signals():
            if callable(signal.getsignal(each)):
                signal.signal(each, signal.SIG_DFL)
        for number, descriptor in enumerate(ends):
            os.dup2(descriptor, number)
        for descriptor in {*map(int, os.listdir("/proc/self/fd"))}.difference((0, 1, 2), kept):
            with suppress(OSError):  # that of the list
                os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        main(**stage)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        if os.getpid() == this:  # it has not forked, and what the parent has not written is the parent's
            os._exit(1)
        leave(code)


def has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


def load(modules: list[str], libraries: list[str]) -> None:
    """Imports them; ends this process where that fails, or where it could not fork afterwards."""
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
    if not has_one_thread():  # a fork would lose the others
        sys.exit(1)


def divide(channel: int, requests: int, told: int, handed: list[int], stage: dict[str, Any]) -> tuple[int, set[int]]:
    """Becomes two processes that fork, the second of which has the next stage. `handed`: the descriptors for that one alone."""
    this = os.getpid()
    if second := os.fork():
        for descriptor in handed:
            os.close(descriptor)
        return channel, {second}
    end_with_parent.end_with(this)
    os.close(channel)
    os.dup2(requests, 0)
    os.close(requests)
    return pass_on(told, **stage)


def warm() -> None:
    """Does once what would take each process its time at first use: a compiled loop (the first one .3 s of CPU, each other one
    10 ms; linear models want five more, the sharder none), and the first optimizer of torch (1.5 s)."""
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


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

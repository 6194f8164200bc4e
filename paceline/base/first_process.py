"""Imported before all else by what a container starts. The kernel shields a container's first process: it ignores SIGTERM as
long as it has no handler, and SIGKILL and SIGSTOP from within the container always. So the first process starts the one that
loads everything, passes on what it is sent, and ends as that one does. Elsewhere this does nothing."""

import os
import signal
import types

PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def _look_after(child: int) -> int:
    """Waits for the child's end; its exit code, 128 and more for a signal."""

    def pass_on(number: int, frame: types.FrameType | None) -> None:
        os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    while True:
        ended, status = os.wait()  # orphans, too, that the kernel gives to a first process
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if os.getpid() == 1:
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until its handlers are set
    if _child := os.fork():
        os._exit(_look_after(_child))
    os.setsid()  # a terminal's Ctrl-C comes by the first process alone
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)

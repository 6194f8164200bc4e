"""Runs a program that must not outlive its launcher: the kernel ends it when the launcher dies, however that happens.

python -I -S end_with_parent.py LAUNCHER-PID PROGRAM ARGUMENTS...   (a separate script, because it must be quick to start)
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tethered(*command: str) -> list[str]:
    """A command that starts this one, and ends with this process, or rather with the thread of it that starts it."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with(parent: int) -> None:
    """From now on this process dies with that one, or rather with the thread of it that started this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before the wish was made
        sys.exit(128 + signal.SIGKILL)


def main() -> None:
    """Becomes the program; the wish to die with the parent survives the exec."""
    launcher, *command = sys.argv[1:]
    end_with(int(launcher))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()

"""The config of a run, read by a process that is forked from one with torch: a user's file says its own settings only when it
is loaded, and the process that shows the run has no other use for what it imports.

This file is both sides: `read_forked`, and the program (`python -m paceline.launch.supervise.read_config_forked FILE TASK
FLAGS`)."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.core.errors import OutOfMemory, PacelineError
from paceline.core.settings.config import Config
from paceline.launch.forks.forker import Forker
from paceline.launch.settings.read_config import read_config
from paceline.launch.supervise.children import Child
from paceline.processes.exits import exits
from paceline.settings.flags import Flags
from paceline.settings.load_settings import whole
from paceline.tasks import task


def read_forked(begun: Forker, what: str, flags: Flags) -> Config:
    """Returns what `read_config` gives in a process that `begun` forks; what the task's file says itself is known to
    `load_config` then. What the file prints comes to stderr; a mistake ends this process in the way that it has ended the
    other one."""
    memory = os.memfd_create("config")  # no file: nothing is left of it when this process ends
    answer = f"/proc/{os.getpid()}/fd/{memory}"
    command = ["-m", __name__, answer, what, json.dumps(asdict(flags))]
    child = Child("reader", "reader", command, None, os.environ, forker=begun)
    try:
        child.start()
        while child.poll() is None:
            time.sleep(0.02)
        told = Path(answer).read_text()
    finally:
        child.signal(signal.SIGKILL)  # after a Ctrl-C, which it does not see
        os.close(memory)
    if child.code:
        _refuse(child, what)
    if not told:
        raise PacelineError(
            f"{what} ended the process that loads it. Remove the code that ends the process, like os._exit()."
        )
    found = json.loads(told)
    task.TOLD.update({(name, model): settings for name, model, settings in found["task"]})
    return whole(found["config"])


def _refuse(child: Child, what: str) -> None:
    """Ends as the child has ended, which has said why unless a signal ended it."""
    assert child.code is not None
    if child.code > 0:
        sys.exit(child.code)
    told = f"The process that loads {what} {child.how_it_ended()}."
    if child.code == -signal.SIGKILL:
        kind = OutOfMemory if child.lacked_memory else PacelineError
        raise kind(f"{told} Load less at the top of the file, or give it more memory.")
    raise PacelineError(f"{told} To see which line does it: python -X faulthandler {what}")


def main(answer: str, what: str, flags: str) -> None:
    """Writes the config to the file `answer`, and the settings that the task's file says itself."""
    with exits("paceline"):
        config = read_config(what, Flags(**json.loads(flags)))
        Path(answer).write_text(json.dumps({"config": config.model_dump(mode="json"), "task": list(_own_settings())}))


def _own_settings() -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """Those that can be passed on."""
    for (name, model), settings in task.READ.items():
        with suppress(TypeError, ValueError):
            json.dumps(settings)
            yield name, model, settings


if __name__ == "__main__":
    main(*sys.argv[1:])

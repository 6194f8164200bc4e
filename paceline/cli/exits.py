"""How a command ends: errors are sentences with their exit codes, and JSON is one object."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paceline.processes.exits import exits as ends

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def exits() -> Iterator[None]:
    """Errors as sentences with their exit codes; a reader that has gone (`| head`) is none."""
    with ends("paceline"):
        try:
            yield
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
            sys.exit(128 + signal.SIGPIPE)


def print_json(values: Mapping[str, Any]) -> None:
    """For programs."""
    import json

    print(json.dumps(values, indent=1))


def console() -> "Console":
    """What shows text to people on stdout."""
    from rich.console import Console

    return Console()

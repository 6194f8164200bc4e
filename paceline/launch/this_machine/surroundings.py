"""By what and where a run was launched: for its report."""

import platform
import shlex
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from paceline.base.notebook import in_notebook
from paceline.launch.this_machine.processors import cores


def surroundings() -> dict[str, Any]:
    """Of this launch: `began` (seconds since 1970), `command`, versions by the names of `paceline`, `python` and `torch`
    (none where that is not installed), `system`, `cores` and `memory` (bytes)."""
    return {
        "began": round(time.time(), 3),
        "command": _command(),
        "paceline": version("paceline"),
        "python": platform.python_version(),
        "torch": _installed("torch"),
        "system": platform.platform(),
        "cores": cores(),
        "memory": psutil.virtual_memory().total,
    }


def _command() -> str:
    """As somebody would type it."""
    if in_notebook():
        return "a notebook"
    first, *others = sys.argv or [""]
    name = Path(first).name
    is_own = name == "paceline" or Path(first).parent.name == "cli"  # python -m paceline.cli
    return shlex.join([*(["paceline"] if is_own else ["python", first]), *others])


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

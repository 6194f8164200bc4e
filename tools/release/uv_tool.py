"""Programs of other packages, each with its own environment made by uv: none of them is a dependency."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_tool(package: str, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """`package`: with its version, like 'pip-audit==2.10.1'. Where uv can't get it, the exit code is 2 at least."""
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([uv, "tool", "run", "--quiet", "--from", package, *command], capture_output=True, text=True)

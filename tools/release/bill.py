"""What is in a package or an image: its bill of materials (CycloneDX), from the file that locks its libraries."""

import subprocess
import sys
from pathlib import Path

from tools.release.provenance import ROOT

TOOL = "cyclonedx-bom==7.5.0"
"""Gets its own environment, by uv."""


def write_bill(lock: Path, file: Path) -> None:
    """All libraries that the lock names, with versions and hashes. What a base image brings is not in it. SystemExit where the
    tool can't be had."""
    uv = Path(sys.executable).with_name("uv")
    told: list[str | Path] = [uv, "tool", "run", "--quiet", "--from", TOOL, "cyclonedx-py", "requirements", lock]
    more: list[str | Path] = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", file]
    done = subprocess.run([*told, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"No bill of materials of {lock.name}: {done.stderr.strip()}")

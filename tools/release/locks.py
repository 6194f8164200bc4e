"""What the lock files name: libraries with their versions, and where each is used."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools.release.provenance import ROOT

IMAGES = tuple(sorted(path for path in (ROOT / "docker").glob("*.lock") if path.name != "build.lock"))
"""The locks of what users run; a wheel's dependencies are those of server.lock."""
LOCKS = (*sorted(ROOT.glob("requirements*.lock")), ROOT / "docker" / "build.lock", *IMAGES)
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)


class Pin(NamedTuple):
    """One version of a library."""

    name: str
    version: str


def pins(locks: Iterable[Path] = LOCKS) -> dict[Pin, list[Path]]:
    """All that is locked, by name and version, each with the files that name it; also what is for other systems only."""
    found: dict[Pin, list[Path]] = {}
    for lock in locks:
        for each in _PIN.finditer(lock.read_text()):
            found.setdefault(Pin(plain(each["name"]), each["version"]), []).append(lock)
    return dict(sorted(found.items()))


def plain(name: str) -> str:
    """A library's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()

"""Entry points of installed packages."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def installed_points(group: str) -> "tuple[EntryPoint, ...]":
    """Returns those of this group; all packages are looked at once for each group and path of imports."""
    return _points_on(group, tuple(sys.path))


@cache
def _points_on(group: str, path: tuple[str, ...]) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # takes 20 ms, and most commands need none

    return tuple(entry_points(group=group))

"""Entry points of installed packages."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def installed_points(group: str) -> "tuple[EntryPoint, ...]":
    """Returns those of this group; all packages are looked at once for each group and path of imports."""
    return _points_on(group, tuple(sys.path))


def not_loaded(point: "EntryPoint", error: Exception) -> str:
    """Returns the package of an entry point that can't be loaded, why, and what to do: the end of a sentence."""
    package = point.dist.name if point.dist is not None else point.module
    return (
        f"the package {package}, which can't be loaded ({type(error).__name__}: {error}). Install a release that goes with "
        f"this one: pip install --upgrade {package}"
    )


@cache
def _points_on(group: str, path: tuple[str, ...]) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # takes 20 ms, and most commands need none

    return tuple(entry_points(group=group))

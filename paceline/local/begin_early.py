"""What a run of a user's own file is forked from, begun before anything else of the run is loaded. Light for that reason: it
imports no settings and no numpy."""

import ast
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from paceline.local.child_environment import child_environment
from paceline.local.forker import SCRIPTS, WORKERS, Forker

QUIET = ("torch", "numpy", "scipy", "sklearn", "PIL", "matplotlib")
"""Packages that start no threads and do nothing else while they load, so that a process that forks may have them."""


@contextmanager
def beginning(task: str | None, loop: str | None) -> Iterator[Forker | None]:
    """What workers are forked from, for a task's file that imports torch as it is loaded, with what that file and the script
    `loop` import beside it. Workers set their number of threads themselves. None for other tasks."""
    wanted = libraries(task)
    if sys.platform != "linux" or not any(name.partition(".")[0] == "torch" for name in wanted):
        yield None
        return
    with closing(Forker(modules(loop), child_environment(threads=1), [*wanted, *libraries(loop)])) as begun:
        yield begun


def modules(loop: str | None) -> tuple[str, ...]:
    """What the workers of a run import, those with a training script of the user's own more."""
    return WORKERS if loop is None else (*WORKERS, *SCRIPTS)


def libraries(file: str | None) -> list[str]:
    """What a Python file imports of `QUIET` in statements at its top level; some may be no modules but names in one."""
    found: list[str] = []
    for node in _parsed(file).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.partition(".")[0] in QUIET]


def _parsed(file: str | None) -> ast.Module:
    """Nothing where there is no such file, or no Python in it: whoever loads it says so."""
    try:
        return ast.parse(b"" if file is None or not file.endswith(".py") else Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])

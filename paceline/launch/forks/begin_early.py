"""What a run is forked from, begun before anything else of the run is loaded, while its config is read. Light for that
reason: it imports no settings and no numpy."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.launch.forks.forker import (
    LINEAR,
    OPTIMIZER,
    ROWS,
    SCRIPTS,
    SERVERS,
    SHARDER,
    WORKERS,
    Forker,
    Loads,
)
from paceline.launch.this_machine.child_environment import child_environment

QUIET = ("torch", "numpy", "scipy", "sklearn", "PIL", "matplotlib")
"""Packages that start no threads and do nothing else while they load, so that a process that forks may have them."""
_TASKS = Path(__file__).parents[2] / "tasks" / "builtin"
_TASK = re.compile(r"^task: *([\w./-]+) *(?:#.*)?$", re.MULTILINE)
"""The line of a YAML file that names the task."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Three processes that fork. They load at one core, while the config is read at another one, and data too."""

    sharder: Forker
    servers: Forker
    workers: Forker
    updates: Literal["dense", "sparse"]
    """Which workers these are: a guess, for what the settings say is not known yet."""
    reads: bool
    """Whether the task's file imports torch as it is loaded; then a fork of the workers' reads the settings."""


@contextmanager
def beginning(what: str | None, is_script: bool = False) -> Iterator[Begun | None]:
    """What all processes are forked from, for a task or a YAML file that names one, or a launched script; with what a user's
    file that imports torch as it is loaded imports besides. Workers set their number of threads themselves. None where
    there is no such task, or fork is not safe."""
    file = _file(what)
    if sys.platform != "linux" or file is None:
        yield None
        return

    is_own = what is not None and what.endswith(".py")
    wanted = libraries(file) if is_own else []
    reads = any(name.partition(".")[0] == "torch" for name in wanted)
    updates: Literal["dense", "sparse"] = "dense" if _needs_torch(file) or is_script else "sparse"
    rows = ROWS if updates == "sparse" else ()
    script, of_task = (what, ()) if is_script else (None, wanted if reads else ())
    workers = workers_of(script, of_task) if updates == "dense" else Loads(LINEAR)

    path = Path(file)
    ours = (f"paceline.tasks.builtin.{path.stem}",) if path.parent == _TASKS else ()
    with three_forkers(child_environment(threads=1), (*rows, *ours), workers) as found:
        yield Begun(*found, updates, reads)


@contextmanager
def three_forkers(
    environment: Mapping[str, str], libraries: Sequence[str], workers: Loads
) -> Iterator[tuple[Forker, Forker, Forker]]:
    """What the sharder, servers and workers are forked from. Each needs most of what the one before does, which is loaded
    once. `libraries`: those that the sharder needs."""
    with (
        closing(Forker(Loads(SHARDER, libraries), environment)) as sharder,
        closing(Forker(Loads(SERVERS), environment, sharder)) as servers,
        closing(Forker(workers, environment, servers)) as last,
    ):
        yield sharder, servers, last


def workers_of(script: str | None, of_task: Sequence[str] = ()) -> Loads:
    """What the workers of a run import: of a task `of_task`, too, of a script what it imports, and an optimizer of torch."""
    if script is None:
        return Loads(WORKERS, of_task)
    return Loads((*WORKERS, *SCRIPTS), (*libraries(script), *OPTIMIZER))


def libraries(file: str) -> list[str]:
    """What a Python file imports of `QUIET` in statements at its top level; some may be no modules but names in one."""
    found: list[str] = []
    for node in _parsed(file).body:
        found += _imported(node)
    return [name for name in found if name.partition(".")[0] in QUIET]


def _needs_torch(file: str) -> bool:
    """Whether it imports torch anywhere: tasks that ship with Paceline do so only where they need it."""
    found = (name for node in ast.walk(_parsed(file)) for name in _imported(node))
    return any(name.partition(".")[0] == "torch" for name in found)


def _imported(node: ast.AST) -> list[str]:
    """What a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _file(what: str | None) -> str | None:
    """The Python file of the task that is named, itself or in a YAML file; None where there is none."""
    if what is not None and what.endswith((".yaml", ".yml")):
        try:
            named = _TASK.search(Path(what).read_text())
        except (OSError, ValueError):
            return None
        what = named and named[1]
    if what is None or what.endswith(".py"):
        return what if what is not None and Path(what).is_file() else None
    found = _TASKS / f"{what}.py"
    return str(found) if found.is_file() else None


def _parsed(file: str) -> ast.Module:
    """Nothing where there is no such file, or no Python in it: the code that loads it says so."""
    try:
        return ast.parse(Path(file).read_bytes() if file.endswith(".py") else b"")
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])

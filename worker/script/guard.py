"""Refuses to train where a script is only imported, by a process that it has started and that would join in its place."""

import ast
import multiprocessing
from pathlib import Path
from traceback import walk_tb
from typing import Any

from paceline.core.errors import ConfigError


def refuse_import(script: str) -> None:
    """ConfigError where this process is another one's child that imports the script by spawn or forkserver."""
    # by the same sign Python refuses such a child further ones
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(_unguarded(script))


def check_guard(script: Path, options: dict[str, Any]) -> None:
    """ConfigError where a DataLoader with these options would start processes that import the script, and train in it."""
    context = options.get("multiprocessing_context") or multiprocessing.get_start_method(allow_none=True)
    context = context or multiprocessing.get_all_start_methods()[0]
    method = context if isinstance(context, str) else context.get_start_method()
    if options.get("num_workers") and method != "fork" and _is_bare(script):
        raise ConfigError(_unguarded(script.name))


def unguarded_loader(error: Exception, script: Path) -> str:
    """What to say where the error is a DataLoader's whose processes imported the script, and so ended; empty otherwise."""
    frames = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    processes = [one for frame in frames for one in getattr(frame, "_workers", ())]
    are_new = any(getattr(type(one), "_start_method", "fork") not in (None, "fork") for one in processes)
    return _unguarded(script.name) if are_new and _is_bare(script) else ""


def _is_bare(script: Path) -> bool:
    """Whether it is a file of which no part stands behind a question for its `__name__`."""
    if not script.is_file():
        return False
    parts = (one.test for one in ast.parse(script.read_bytes()).body if isinstance(one, ast.If))
    return not any(isinstance(node, ast.Name) and node.id == "__name__" for part in parts for node in ast.walk(part))


def _unguarded(script: str) -> str:
    return (
        f"A process that {script} starts by spawn or forkserver, like those of a DataLoader with num_workers, imports "
        f"{script}, and would train there, too. Put what trains behind `if __name__ == '__main__':`, or start processes by "
        "fork (multiprocessing_context='fork')."
    )

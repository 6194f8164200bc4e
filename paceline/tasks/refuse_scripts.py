"""A training script where a task is expected: loaded as a task, it would train to its end, alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

from paceline.core.errors import ConfigError

_CALLS = ("wrap", "epochs", "steps", "loader", "sampler")
"""What a script calls, and a task never does."""


def refuse_script(path: Path) -> None:
    """ConfigError where the file is one."""
    for name, line in _calls_of_script(path):
        raise ConfigError(
            f"{path} is a training script, not a task: line {line} calls paceline.{name}. Start it with: paceline launch {path}"
        )


def is_training_script(path: Path) -> bool:
    """Whether the file is one by its calls. A file that is no Python is left to who loads it."""
    return next(_calls_of_script(path), None) is not None


def _calls_of_script(path: Path) -> Iterator[tuple[str, int]]:
    """What a script calls of Paceline's, with its lines; nothing for other files."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError):
        return
    if not any(isinstance(each, ast.FunctionDef) and each.name == "data" for each in tree.body):
        yield from _called(tree)


def _called(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Paceline's functions that the file calls, with their lines."""
    packages: set[str] = set()
    functions: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.asname or alias.name for alias in node.names if alias.name == "paceline"}
        elif isinstance(node, ast.ImportFrom) and node.module == "paceline":
            functions |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in packages:
            name = called.attr
        else:
            name = functions.get(called.id, "") if isinstance(called, ast.Name) else ""
        if called is not None and name in _CALLS:
            yield name, called.lineno

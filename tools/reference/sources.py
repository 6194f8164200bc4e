"""What the code says of itself where it is only written, not run: its calls, and the texts in them."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GAP = "…"
"""Stands for what is known at run time only."""


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """All modules that run in a run's processes and in the command line, by path."""
    found = sorted(
        path
        for room in ("paceline", "server", "worker", "sharder")
        for path in (ROOT / room).rglob("*.py")
        if "_pb2" not in path.name
    )
    return tuple((str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in found)


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, dict[str, ast.expr]]]:
    """The calls of plain names inside of functions, with the name, and what the function and the module have assigned."""
    constants = _names(tree.body, line=sys.maxsize)
    for place in ast.walk(tree):
        if isinstance(place, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call in ast.walk(place):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    yield call, call.func.id, constants | names_in(place, call.lineno)


def text_of(node: ast.expr | None, names: dict[str, ast.expr]) -> str | None:
    """The text that an expression is, with gaps; None where it is none. `names`: what was assigned in its function."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = text_of(node.left, names), text_of(node.right, names)
        return None if both == (None, None) else "".join(text or GAP for text in both)
    if isinstance(node, ast.Name) and node.id in names:
        return text_of(names[node.id], {})
    return None


def names_in(place: ast.AST, line: int) -> dict[str, ast.expr]:
    """What is assigned to plain names in a function before a line of its file; the newest."""
    return _names(ast.walk(place), line)


def _names(nodes: Iterable[ast.AST], line: int) -> dict[str, ast.expr]:
    found = (node for node in nodes if isinstance(node, ast.Assign) and node.lineno < line)
    return {
        target.id: node.value
        for node in sorted(found, key=lambda node: node.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _piece(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else GAP

"""What the code says of itself where it is only written, not run: its calls, and the texts in them."""

import ast
import gc
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GAP = "…"
"""Stands for what is known at run time only."""


def modules(words: Iterable[str]) -> list[tuple[str, ast.Module]]:
    """The modules that run in a run's processes and in the command line, and in whose code one of these words is, by path."""
    has_word = re.compile("|".join(map(re.escape, sorted(words)))).search
    is_collecting = gc.isenabled()
    gc.disable()  # all of it stays, and looking at it again and again takes longer than to parse it
    try:
        return [(name, _parsed(name)) for name, text in _texts().items() if has_word(text)]
    finally:
        if is_collecting:
            gc.enable()


@cache
def _texts() -> dict[str, str]:
    """What is written in each module, by path."""
    found = sorted(
        path
        for room in ("paceline", "server", "worker", "sharder")
        for path in (ROOT / room).rglob("*.py")
        if "_pb2" not in path.name
    )
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


@cache
def _parsed(name: str) -> ast.Module:
    return ast.parse(_texts()[name])


def calls(tree: ast.Module, wanted: Collection[str]) -> Iterator[tuple[ast.Call, str, dict[str, ast.expr]]]:
    """The calls of these plain names inside of functions, with the name, and what the function and the module have
    assigned."""
    constants = _names(tree.body, line=sys.maxsize)
    for place in ast.walk(tree):
        if isinstance(place, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes = list(ast.walk(place))
            for call in nodes:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in wanted:
                    yield call, call.func.id, constants | _names(nodes, call.lineno)


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


def _names(nodes: Iterable[ast.AST], line: int) -> dict[str, ast.expr]:
    """What is assigned to plain names before a line of their file; the newest."""
    found = (node for node in nodes if isinstance(node, ast.Assign) and node.lineno < line)
    return {
        target.id: node.value
        for node in sorted(found, key=lambda node: node.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _piece(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else GAP

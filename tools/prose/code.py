"""What people read in the code: comments, docstrings and texts, as pieces for the rules of words."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.prose.pages import ROOT, Page, Piece

_FEWEST_WORDS = 4
"""A shorter text is a name or a part of one."""
ROOMS = (
    "paceline",
    "server",
    "worker",
    "sharder",
    "tools",
    "tests",
    "e2e",
    "benchmarks",
    "k8s",
    "papers",
    "studies",
    "examples",
)


def code_pages(root: Path = ROOT) -> Iterator[Page]:
    """All Python files but generated ones."""
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if "_pb2" not in path.name:
                yield read_code(path, path.relative_to(root).as_posix())


def read_code(path: Path, name: str) -> Page:
    """A Python file as a page without lines that could be wrapped: ruff looks after those."""
    source = path.read_text(encoding="utf-8")
    return Page(name, (), (), (*_comments(source), *_texts(source)), ())


def _comments(source: str) -> Iterator[Piece]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Piece("comment", token.string.lstrip("# "), token.start[0], (0,))


def _texts(source: str) -> Iterator[Piece]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= _FEWEST_WORDS:
            yield Piece("paragraph", " ".join(node.value.split()), node.lineno, (0,))

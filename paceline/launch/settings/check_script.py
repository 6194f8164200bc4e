"""Looks through a training script before any process runs it: its syntax, and names that nothing gives a value."""

import ast
import builtins
import difflib
import symtable
from collections.abc import Iterator
from pathlib import Path

from paceline.core.errors import ConfigError

_GIVEN = {*dir(builtins), "__file__", "__builtins__", "__annotations__", "__class__", "__module__", "__qualname__"}
_FREE = ("globals", "exec", "eval", "NameError", "vars", "locals")
"""Where one of these is used, names may come from anywhere."""


def check_script(path: Path) -> None:
    """Raises ConfigError with the line of the first mistake."""
    try:
        source = path.read_bytes()
        tree = ast.parse(source, str(path))
        table = symtable.symtable(source.decode(), str(path), "exec")
    except OSError as error:
        raise ConfigError(f"script: can't read {path}: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        told = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(f"script: {path}{line} is not Python: {told}.") from error
    used = {node.id: node.lineno for node in reversed(list(ast.walk(tree))) if isinstance(node, ast.Name)}
    stars = any(
        alias.name == "*" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    )
    if stars or used.keys() & set(_FREE):
        return
    known = _GIVEN | {name for scope in _scopes(table) for name in _given(scope, scope is table)}
    wanted = {name for scope in _scopes(table) for name in _taken(scope, scope is table)}
    for name in sorted(wanted - known, key=lambda name: used.get(name, 0)):
        near = difflib.get_close_matches(name, list(known), 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"script: {path}, line {used.get(name, '?')}: there is no name '{name}'.{hint}")


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """The module and all functions and classes in it."""
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _given(scope: symtable.SymbolTable, is_module: bool) -> Iterator[str]:
    """Global names that get a value there."""
    for symbol in scope.get_symbols():
        if (is_module or symbol.is_declared_global()) and (symbol.is_assigned() or symbol.is_imported()):
            yield symbol.get_name()


def _taken(scope: symtable.SymbolTable, is_module: bool) -> Iterator[str]:
    """Global names that are used there."""
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()

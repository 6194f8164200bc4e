"""SETTINGS of a user's task file as they are written there, for processes that do not run the file: a server has no torch,
and all processes of a run must come to the same."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError

Keys = tuple[str, ...]
_ALL, _BY_MODEL, _MODELS, _MODEL = "SETTINGS", "MODEL_SETTINGS", "MODELS", "model"
_NUMBERS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
}


class _Computed(Exception):
    """This is known only to who runs the file."""


def written_settings(file: Path, model: str | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """SETTINGS with MODEL_SETTINGS of the model in their place, as `load_task(...).settings` has them; nothing where the file
    does not exist. `given`: what lies above them. ConfigError names a value that is computed and is not given."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except OSError:
        return {}
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"Can't read the task file {file}: {error}. Correct the file.") from error
    return _File(file, tree, given).settings(model)


class _File:
    """A file that is read, not run."""

    def __init__(self, file: Path, tree: ast.Module, given: Mapping[str, Any]) -> None:
        self._file = file
        self._tree = tree
        self._given = given
        self._values: dict[str, list[ast.expr]] = {}
        for name, value in _assigned(tree.body):
            self._values.setdefault(name, []).append(value)

    def settings(self, model: str | None) -> dict[str, Any]:
        """Those of the model."""
        settings = self._table(_ALL)
        if _BY_MODEL not in _names(self._tree):
            return settings
        chosen = model or self._default_model()
        return {**settings, **self._table(_BY_MODEL, (chosen,)).get(chosen, {})}

    def _table(self, name: str, only: Sequence[str] = ()) -> dict[str, Any]:
        """The dict of that name; `only`: the one of its keys that counts."""
        if name not in _names(self._tree):
            return {}
        try:
            if _is_changed(self._tree, name):
                raise _Computed
            node = self._once(name)
            if not isinstance(node, ast.Dict):
                raise _Computed
            return self._dict(node, (), only)
        except _Computed:
            raise self._refusal(name, f"`{name} = {{'epochs': 5}}`, once and of plain values") from None

    def _dict(self, node: ast.Dict, above: Keys, only: Sequence[str] = ()) -> dict[str, Any]:
        """Its values; one that is computed is left out where it is given."""
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self._plain(value)
                continue
            name = self._plain(key)
            if only and name not in only:
                continue
            keys = above if only else (*above, str(name))
            try:
                found[name] = self._dict(value, keys) if isinstance(value, ast.Dict) else self._plain(value)
            except _Computed:
                if not _has(self._given, keys):
                    raise self._refusal(".".join(keys), f"a plain value, or {'.'.join(keys)} in the config") from None
        return found

    def _plain(self, node: ast.expr) -> Any:
        """A value that needs nothing to be run but sums of numbers."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._plain(self._once(node.id))
            case ast.Dict():
                return self._dict(node, ())
            case ast.List() | ast.Tuple():
                return [self._plain(each) for each in node.elts]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _NUMBERS:
                return _number(op, self._plain(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NUMBERS:
                return _number(op, self._plain(left), self._plain(right))
        raise _Computed

    def _once(self, name: str) -> ast.expr:
        """What is assigned to the name, in the file's own lines and once."""
        if len(self._values.get(name, [])) != 1 or _is_changed(self._tree, name):
            raise _Computed
        return self._values[name][0]

    def _default_model(self) -> str:
        """As `load_task` chooses it."""
        if _MODEL in _names(self._tree):
            return _MODEL
        try:
            models = self._once(_MODELS)
            if isinstance(models, ast.Dict) and models.keys and models.keys[0] is not None:
                return str(self._plain(models.keys[0]))
        except _Computed:
            pass
        raise self._refusal(_MODELS, "its names plainly, or `model` in the config")

    def _refusal(self, what: str, instead: str) -> ConfigError:
        return ConfigError(
            f"{what} in the task file {self._file} is computed when the file runs, but processes that you start "
            f"yourself read it without running it. Write {instead}, or let `paceline run` write the whole config."
        )


def _assigned(lines: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The assignments that always happen."""
    for line in lines:
        if isinstance(line, ast.Assign):
            yield from ((target.id, line.value) for target in line.targets if isinstance(target, ast.Name))
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            yield line.target.id, line.value


def _names(tree: ast.Module) -> set[str]:
    """All that the file's own lines give a name, in loops and conditions too."""
    found: set[str] = set()
    for node in _outside_functions(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _outside_functions(child)


def _is_changed(tree: ast.Module, name: str) -> bool:
    """Whether the name is bound more than once, or what it holds is written to or handed to a method."""
    bound = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            bound += isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Attribute | ast.Subscript) and _is_written(node, name):
            return True
    return bound > 1


def _is_written(node: ast.Attribute | ast.Subscript, name: str) -> bool:
    """Whether it is a method of what has that name, or one of its keys that is set."""
    is_name = isinstance(node.value, ast.Name) and node.value.id == name
    return is_name and (isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load))


def _number(op: ast.AST, *values: Any) -> Any:
    if not all(isinstance(value, int | float) for value in values):
        raise _Computed
    return _NUMBERS[type(op)](*values)


def _has(given: Mapping[str, Any], keys: Keys) -> bool:
    """Whether what lies above says this; a section that is given by its name alone says all of itself."""
    found: Any = given
    for key in keys:
        if not isinstance(found, Mapping):
            return True
        if key not in found:
            return False
        found = found[key]
    return True

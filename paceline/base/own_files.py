"""A Python file of a user's, as a module: its source is always read, and an error in it names file and line."""

import ast
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from paceline.core.errors import ConfigError

_LASTING = {"paceline.extend", "paceline.lightning"}
"""Modules that keep their names."""
_HERE = str(Path(__file__).parents[1]) + os.sep
"""The folder of this package's files."""
_CODE: set[str] = set()
"""Files of users' policies, codecs and the like."""


def is_own(name: str) -> bool:
    """Whether a name in the settings is the path of a user's file."""
    return "/" in name or name.endswith(".py")


def load_file(name: str, path: str, source: bytes | None = None) -> ModuleType:
    """The file at `path` as the module `name`; `source`: what replaces its content. Raises what the file raises."""
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, path, source))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses in the file look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def note_code(file: str) -> None:
    """The file holds a user's code that our processes call: what fails in it is not a bug in Paceline."""
    _CODE.add(os.path.abspath(file))


def blamed(error: BaseException) -> str | None:
    """Where a user's code failed, as a sentence; None where none had a part in it. The error, or one that it came from,
    since a thread that waits for another raises its error again."""
    seen: BaseException | None = error
    while seen is not None:
        own = [frame for frame in traceback.extract_tb(seen.__traceback__) if os.path.abspath(frame.filename) in _CODE]
        if own:
            file, line, function = own[-1].filename, own[-1].lineno, own[-1].name
            return f"{file}, line {line}, in {function}(): {error_text(seen)}"
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


def error_text(error: BaseException) -> str:
    """'KeyError: 'length'': its kind, and what it says, if anything, without pydantic's advice to visit a page."""
    text = str(error).partition("For further information visit")[0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where(error: BaseException, file: str) -> str:
    """The file, and the last of its lines that led to the error."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{file}, line {error.lineno}"
    same = os.path.abspath(file)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.abspath(frame.filename) == same]
    return f"{file}, line {lines[-1]}" if lines else file


def package_of(file: Path) -> tuple[str, Path]:
    """Returns the name of the package that a file is in, and the folder that its topmost package is in; '' and the file's own
    folder where there is no __init__.py next to it."""
    folder, names = file.resolve().parent, list[str]()
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


def file_of_module(name: str) -> str:
    """Returns the file that `python -m NAME` runs here, without importing its packages. Raises ConfigError if there is none."""
    spec, path, here = None, None, os.getcwd()
    for end in [*(index for index, letter in enumerate(name) if letter == "."), len(name)]:
        within = [here] if path is None else path
        spec = PathFinder.find_spec(name[:end], within) or _spec_of_others(name[:end], path)
        if spec is None:
            raise ConfigError(
                f"There is no module {name[:end]} here. Give the name that `python -m` takes in this folder."
            )
        path = spec.submodule_search_locations
        if path is not None and spec.origin is None:
            raise ConfigError(
                f"{name[:end]} has no __init__.py, so it is no package. Add one, or give the script's path."
            )
    if path is not None:
        return file_of_module(f"{name}.__main__")
    origin = "" if spec is None else str(spec.origin)
    if not origin.endswith(".py"):
        raise ConfigError(f"The module {name} has no Python file, so it can't be started as a script.")
    return os.path.relpath(origin) if Path(origin).is_relative_to(here) else origin


def _spec_of_others(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What all finders know, those of packages that are installed as editable, too."""
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def show_own(error: Exception, script: str) -> None:
    """Prints what a script fails with as Python does, from the script's own lines on, without Paceline's: those that have
    started it, and those that have called a function of it."""
    frames, trace = list[TracebackType](), error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    while frames and _file_of(frames[0]) != os.path.abspath(script):
        del frames[0]

    shown = [each for each in frames if each is frames[-1] or not _file_of(each).startswith(_HERE)]
    for each, following in pairwise(shown):
        each.tb_next = following
    first = shown[0] if shown else None
    sys.excepthook(type(error), error.with_traceback(first), first)


def _file_of(trace: TracebackType) -> str:
    return os.path.abspath(trace.tb_frame.f_code.co_filename)


class _Source(SourceFileLoader):
    """Always reads the source: stored bytecode is compared by second and size, so a quick edit would not be seen."""

    def __init__(self, name: str, path: str, source: bytes | None) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path) if self._source is None else self._source
        tree = ast.parse(source, self.path)
        _warn_of_deep_paths(tree, self.path)
        return self.source_to_code(tree, self.path)


def _warn_of_deep_paths(tree: ast.Module, file: str) -> None:
    """Warns of each line that imports from a module of Paceline whose place may change."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.startswith("paceline.") and node.module not in _LASTING:
            text = f"{node.module} may be elsewhere in the next release; import what paceline.extend has from there"
            warnings.warn_explicit(f"{file}, line {node.lineno}: {text}", DeprecationWarning, file, node.lineno)

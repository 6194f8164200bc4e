"""From the words of a command line to a checked config; a training script is looked through before any process runs it."""

import ast
import builtins
import difflib
import os
import symtable
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.variables import TLS
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RUNS, RunFolder
from paceline.launch.settings.loggers import check_loggers
from paceline.launch.this_machine.processors import processes_here
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load, read_yaml, settings_above
from paceline.settings.own_extensions import KEPT, check_own

NO_FLAGS = Flags()
ENDINGS = (".yaml", ".yml")
MISSING = "Missing argument 'TASK|CONFIG.yaml': a task like digits or a YAML file; or give --preset NAME."
_GIVEN = {*dir(builtins), "__file__", "__builtins__", "__annotations__", "__class__", "__module__", "__qualname__"}
_FREE = ("globals", "exec", "eval", "NameError", "vars", "locals")
"""Where one of these is used, names may come from anywhere."""


def read_config(what: str | None, flags: Flags = NO_FLAGS) -> Config:
    """Returns the config of a task or a YAML file, or of a preset alone, and the flags. Raises UsageError, ConfigError."""
    if what is None and flags.preset is None:
        raise UsageError(MISSING)
    path = Path(what) if what is not None and what.endswith(ENDINGS) else None
    task = {} if what is None or path else {"task": what}

    try:
        return complete(flags.overrides(**task), path, flags.preset)
    except ConfigError as error:
        folder = RunFolder(RUNS / (flags.run or ""))
        if any(f"{file.name}: there is no such file" in str(error) for file in folder.path.glob(f"{KEPT}/*.py")):
            hint = f"Run '{flags.run}' has a copy; it goes on with that by: paceline run {folder.config}"
            raise ConfigError(f"{error} {hint}") from error
        raise


def read_launch(
    script: str, arguments: Sequence[str], flags: Flags = NO_FLAGS, *, fresh: bool = False
) -> tuple[Config, dict[str, Any]]:
    """Returns the config of a script's run, as far as it is known before the script describes it, and all that was given of
    it: now, or when the run of that name was begun (not if it is to start `fresh`). Raises ConfigError where there is no
    such script, or it can't be read as Python."""
    if not script.endswith(".py") or not Path(script).is_file():
        raise ConfigError(
            f"There is no Python file {script}. Give the path of your training script, like train.py, or with -m the name of "
            "a module."
        )
    check_script(Path(script))
    begun = RunFolder(RUNS / flags.run).first_settings if flags.run and not fresh else None
    before = read_yaml(begun) if begun and begun.exists() else {}

    said = {"arguments": list(arguments)} if arguments or not before else {}
    overrides = flags.overrides(task=script, data={"source": "script"}, **said)
    below = {"workers": processes_here(), **before}
    config = load(None, overrides, below)
    check_own(config)
    check_loggers(config)
    return config, settings_above(overrides, below=below)


def anew(settings: Mapping[str, Any], flags: Flags) -> Config:
    """Returns the config for shards that are dealt again; `settings`: those that they were made with."""
    return load(None, flags.overrides(), settings)


def complete(overrides: Mapping[str, Any], path: Path | None = None, preset: str | None = None) -> Config:
    """The config with the task's own defaults below all else: two steps, because its name is among the settings."""
    from paceline.tasks.task import load_config

    config = load_config(path, overrides, preset)
    check_own(config)
    check_loggers(config)
    return config


def use_keys(folder: Path) -> None:
    """Lets this process and all it starts speak TLS with the keys in the folder. ConfigError: they are no good."""
    from paceline.rpc.auth import read_credentials

    read_credentials(None, folder)
    os.environ[TLS] = str(folder.resolve())


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
    known = _GIVEN | {name for scope in _scopes(table) for name in _assigned(scope, scope is table)}
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


def _assigned(scope: symtable.SymbolTable, is_module: bool) -> Iterator[str]:
    """Global names that get a value there."""
    for symbol in scope.get_symbols():
        if (is_module or symbol.is_declared_global()) and (symbol.is_assigned() or symbol.is_imported()):
            yield symbol.get_name()


def _taken(scope: symtable.SymbolTable, is_module: bool) -> Iterator[str]:
    """Global names that are used there."""
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()

"""A task says what is trained: a file with a few plain functions, built in or a user's own. Nothing here imports torch
until a function that needs it is called, because the sharder reads `data` without it."""

import difflib
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt

from paceline.core import registry
from paceline.core.errors import ConfigError, DataError, PacelineError
from paceline.data.dataset import Dataset
from paceline.tasks import defaults

if TYPE_CHECKING:
    import torch

BUILTIN = "paceline.tasks.builtin"
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained, as functions that check themselves: a mistake in the file is a ConfigError with its line."""

    name: str
    data: Callable[[str], Dataset]
    """Reads the examples at `data.path` of the config: raw features (images stay uint8) and whole-number labels."""
    model: "Callable[[], torch.nn.Module]"
    """A new model, its first weights drawn from torch's global generator."""
    prepare: "Callable[[Array, Array, np.random.Generator | None], tuple[torch.Tensor, torch.Tensor]]"
    """Raw features and labels as input tensors; with a generator it is for training and may augment."""
    loss: "Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]"
    """loss(model, inputs, labels): the mean over the mini-batch, a scalar tensor."""
    metrics: Callable[[Any, "torch.Tensor"], dict[str, SupportsFloat]]
    """metrics(outputs, labels): means over the examples, by name."""
    settings: Mapping[str, Any]
    """The task's own defaults of the config, below YAML, environment and flags."""


def load_task(name_or_path: str) -> Task:
    """The built-in task of that name, or the user's file where the value has a '/' or ends in '.py'. ConfigError: no
    such task or file, a file that fails on import, or one without data() or model()."""
    own = "/" in name_or_path or name_or_path.endswith(".py")
    module = _load_file(Path(name_or_path)) if own else _load_builtin(name_or_path)
    settings = getattr(module, "SETTINGS", {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"SETTINGS in {module.__file__} is {_kind(settings)}; it must be a dict like {{'epochs': 5}}."
        )
    parts = {part: _guarded(module, part, rule) for part, rule in _RULES.items()}
    return Task(name=Path(name_or_path).stem, settings=settings, **parts)


def _load_builtin(name: str) -> ModuleType:
    known = registry.names(BUILTIN)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"There is no task '{name}'.{hint} Built in: {', '.join(known)}. A file of your own is given by its path, "
            f"like ./{Path(name).stem or 'task'}.py."
        )
    return importlib.import_module(f"{BUILTIN}.{name}")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file() or path.suffix != ".py":
        seen = "is not a Python file" if path.exists() else "does not exist"
        raise ConfigError(f"The task file {path} {seen}. Give the path of a .py file with data() and model().")
    spec = importlib.util.spec_from_file_location(f"paceline_task_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise ConfigError(f"The task file can't be loaded: {_where(error, str(path))}: {_told(error)}") from error
    return module


class _Rule(NamedTuple):
    """What a function of a task must return, and what stands in for it where the file has none."""

    expected: str
    fits: Callable[[Any], bool]
    default: Callable[..., Any] | None = None


def _is_model(found: Any) -> bool:
    import torch

    return isinstance(found, torch.nn.Module)


def _is_batch(found: Any) -> bool:
    import torch

    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, torch.Tensor) for part in found)):
        return False
    inputs, labels = found
    return inputs.ndim > 0 and labels.ndim > 0 and len(inputs) == len(labels)


def _is_scalar(found: Any) -> bool:
    import torch

    return isinstance(found, torch.Tensor) and found.ndim == 0


def _is_table(found: Any) -> bool:
    """'loss' is taken: the scores of a model hold the loss under this name."""
    return (
        isinstance(found, dict)
        and "loss" not in found
        and all(isinstance(name, str) and isinstance(value, SupportsFloat) for name, value in found.items())
    )


_RULES = {
    "data": _Rule("a paceline.data.dataset.Dataset", lambda found: isinstance(found, Dataset)),
    "model": _Rule("a torch.nn.Module", _is_model),
    "prepare": _Rule("two tensors of equal length, inputs and labels", _is_batch, defaults.prepare),
    "loss": _Rule("a scalar tensor, the mean over the mini-batch", _is_scalar, defaults.loss),
    "metrics": _Rule("a dict of names and numbers, none called 'loss'", _is_table, defaults.metrics),
}


def _guarded(module: ModuleType, part: str, rule: _Rule) -> Callable[..., Any]:
    """The task's function, or its default, with failures and wrong results turned into errors that name the place."""
    function = getattr(module, part, rule.default)
    file = str(module.__file__)
    if not callable(function):
        seen = f"has {_kind(function)} as {part}" if hasattr(module, part) else f"lacks {part}()"
        raise ConfigError(f"The task file {file} {seen}. A task needs the functions data(path) and model().")

    @functools.wraps(function)
    def guarded(*arguments: Any) -> Any:
        try:
            found = function(*arguments)
        except PacelineError:
            raise
        except OSError as error:
            raise DataError(f"{part}() of the task, {_where(error, file)}: {_told(error)}") from error
        except Exception as error:
            raise ConfigError(f"{part}() of the task failed, {_where(error, file)}: {_told(error)}") from error
        if not rule.fits(found):
            raise ConfigError(f"{part}() in {file} returned {_kind(found)}; it must return {rule.expected}.")
        return found

    return guarded


def _where(error: BaseException, file: str) -> str:
    """The file, and the last of its lines that led to the error."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{file}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}, line {lines[-1]}" if lines else file


def _told(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        text += ". Import torch inside the functions: the sharder reads data() where there is no torch."
    return text


def _kind(found: Any) -> str:
    shape = getattr(found, "shape", None)
    shown = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    inside = f" of {', '.join(_kind(part) for part in found)}" if isinstance(found, tuple) and found else ""
    return f"{type(found).__name__}{shown}{inside if not shown else ''}"

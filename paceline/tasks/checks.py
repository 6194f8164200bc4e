"""Functions of a task file that check themselves: a failure or a wrong result is an error that names file and line."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsFloat

from paceline.base.extras import lacking
from paceline.base.own_files import where
from paceline.core.errors import ConfigError, DataError, PacelineError, is_out_of_memory, out_of_memory
from paceline.data.dataset import Dataset
from paceline.data.map_style import adapted
from paceline.tasks import defaults


class Rule(NamedTuple):
    """What a function of a task must return, and what replaces it where the file has none."""

    expected: str
    fits: Callable[[Any], bool]
    default: Callable[..., Any] | None = None
    adapt: Callable[[Any], Any] = lambda found: found
    """Turns other forms that are taken into the one that is expected."""


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


def _is_rows(found: Any) -> bool:
    import torch

    return isinstance(found, torch.Tensor) and found.ndim == 2 and found.is_floating_point()


def _is_table(found: Any) -> bool:
    """'loss' is taken: the scores of a model hold the loss under this name."""
    return (
        isinstance(found, dict)
        and "loss" not in found
        and all(isinstance(name, str) and _is_number(value) for name, value in found.items())
    )


def _is_number(value: Any) -> bool:
    """Python's, numpy's and torch's: anything that is one number, so no array of several."""
    shape = getattr(value, "shape", ())
    return isinstance(value, SupportsFloat) and math.prod(shape) == 1


RULES = {
    "data": Rule(
        "a paceline.data.dataset.Dataset, or torch's map-style data sets: one, or a pair for training and testing",
        lambda found: isinstance(found, Dataset),
        adapt=adapted,
    ),
    "model": Rule("a torch.nn.Module", _is_model),
    "prepare": Rule("two tensors of equal length, inputs and labels", _is_batch, defaults.prepare),
    "loss": Rule("a scalar tensor, the mean over the mini-batch", _is_scalar, defaults.loss),
    "metrics": Rule(
        "a dict of names and numbers (one each, no arrays), none called 'loss'", _is_table, defaults.metrics
    ),
}


PROBABILITIES = Rule("a tensor of probabilities (examples, classes)", _is_rows)


def guarded(file: str, part: str, function: Callable[..., Any], rule: Rule) -> Callable[..., Any]:
    """The function `part` of the task file, with failures and wrong results turned into errors that name the place."""

    is_default = rule.default is not None and inspect.unwrap(function) is rule.default
    own = f"{part}() (the default one)" if is_default else f"{part}()"

    @functools.wraps(function)
    def checked(*arguments: Any) -> Any:
        try:
            found = rule.adapt(function(*arguments))
        except PacelineError:
            raise
        except (Exception, SystemExit) as error:  # a process that ended here with 0 would pass for one that is done
            if is_out_of_memory(error):
                raise out_of_memory(error, f"{own} of the task, {where(error, file)}") from error
            raise _failure(own, file, error) from error
        if not rule.fits(found):
            raise ConfigError(f"{part}() in {file} returned {kind(found)}; it must return {rule.expected}.")
        return found

    return checked


def _failure(part: str, file: str, error: BaseException) -> PacelineError:
    if isinstance(error, OSError):
        return DataError(f"{part} of the task, {where(error, file)}: {error_text(error)}")
    return ConfigError(f"{part} of the task failed, {where(error, file)}: {error_text(error)}")


def error_text(error: BaseException) -> str:
    """The error's kind and text, with what to do where torch is missing."""
    if not isinstance(error, ModuleNotFoundError) or (lack := lacking(error, "it")) is None:
        return f"{type(error).__name__}: {error}"
    more = " Import torch inside the functions: the sharder reads data() where there is no torch."
    return f"{type(error).__name__}: {lack}{more if error.name == 'torch' else ''}"


def kind(found: Any) -> str:
    """What somebody returned, for people: its type, and its shape or what is in it."""
    shape = getattr(found, "shape", None)
    shown = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    inside = f" of {', '.join(kind(part) for part in found)}" if isinstance(found, tuple) and found else ""
    return f"{type(found).__name__}{shown}{inside if not shown else ''}"

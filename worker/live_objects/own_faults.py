"""Reports the failure of a user's function, model or data in a run's process, with the lines of the user's code, or the layer
or example that torch did not take."""

import os
import sysconfig
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils.data import Subset

from paceline.base.own_files import error_text
from paceline.core.errors import ConfigError, PacelineError, is_out_of_memory
from paceline.tasks.checks import kind
from paceline.worker.live_objects.live_training import LiveTraining

TRIED = "This came of the first examples, which paceline.train tries here before it starts any process."
"""Note of an error that was raised in the user's own process."""
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
"""The folder of the package."""
_CALL_GIVEN = tuple(
    f"{_OURS}worker{os.sep}{name}" for name in ("live_objects", "script/loaders", "script/mini_batches")
)
"""Where Paceline's code calls a user's model, data and functions alone."""
_SEARCH = 20.0
"""Longest search for the example that differs from the first one (seconds)."""


@contextmanager
def as_config_errors(live: LiveTraining) -> Iterator[None]:
    """A mistake in a user's code, model or data becomes a ConfigError with what led to it, since another start would only
    repeat it. What may pass, a file that can't be read or memory, stays as it is."""
    try:
        yield
    except (PacelineError, OSError):
        raise
    except Exception as error:
        lines = own_lines(error)
        if is_out_of_memory(error) or not (lines or _is_of_given(error)):
            raise
        layer = _layer(error, live.model)
        behind = f"\n{lines.rstrip()}" if lines else f"\n{found}" if (found := layer or _odd_example(live)) else ""
        raise ConfigError(f"{error_text(error)}{behind}") from error


def _is_of_given(error: BaseException) -> bool:
    """Whether an installed package raised it over a user's object: Paceline's last frame calls nothing else."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = [file for file in files if file.startswith(_OURS)]
    return bool(ours) and files[-1] != ours[-1] and ours[-1].startswith(_CALL_GIVEN)


def _layer(error: BaseException, model: nn.Module) -> str:
    """Which of the model's layers raised it, for people; empty where none did."""
    names, found = {id(layer): name for name, layer in model.named_modules()}, ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        layer = frame.f_locals.get("self")
        if isinstance(layer, nn.Module) and names.get(id(layer)):
            found = f"The layer {names[id(layer)]!r} of your model raised it: {str(layer).partition(chr(10))[0]:.100}."
    return found


def _odd_example(live: LiveTraining) -> str:
    """The first example that has another form than example 0, for people; empty where there is none, or none in time."""
    end = time.monotonic() + _SEARCH
    for name, rows in {"train": live.train, **{name: each.rows for name, each in live.kept.items()}}.items():
        count = len(rows) if hasattr(rows, "__getitem__") and hasattr(rows, "__len__") else 0
        first = rows[0] if count else None
        for number in range(1, count):
            row = rows[number]
            if _form(row) != _form(first):
                return (
                    f"Example {_users_number(rows, number):,} of {name} is {kind(row)}, and others are {kind(first)}."
                )
            if time.monotonic() > end:
                return ""
    return ""


def _users_number(rows: Any, number: int) -> int:
    """The example's number in the data that were split."""
    while isinstance(rows, Subset):
        rows, number = rows.dataset, rows.indices[number]
    return number


def _form(row: Any) -> tuple[Any, ...]:
    """What all examples of a mini-batch have in common."""
    leaves, structure = _pytree.tree_flatten(row)
    return structure, *((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves)


def own_lines(error: BaseException) -> str:
    """The frames of an error that are the user's, called by Paceline's where some are, as a traceback shows them; empty where
    there are none."""
    frames = list(traceback.extract_tb(error.__traceback__))
    ours = (
        place for place, frame in enumerate(frames) if frame.filename.startswith(_OURS) and frame.filename != __file__
    )
    first = next(ours, 0)
    frames = [frame for frame in frames[first:] if is_own(frame.filename)]
    return "".join(traceback.format_list(frames))


def is_own(file: str) -> bool:
    """Whether it is neither installed nor a part of Paceline."""
    return not file.startswith((*_INSTALLED, _OURS, "<frozen")) or "ipykernel" in file


def behind_ours(trace: TracebackType | None) -> TracebackType | None:
    """The frames after Paceline's last one: where a user's function has failed. The whole traceback if Paceline's code
    failed."""
    found = here = trace
    while here is not None:
        if here.tb_frame.f_code.co_filename.startswith(_OURS):
            found = here.tb_next
        here = here.tb_next
    return found or trace

"""Reports the failure of a user's function in a run's process, with the lines of the user's code."""

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from paceline.base.own_files import said
from paceline.core.errors import ConfigError, PacelineError, is_out_of_memory

TRIED = "This came of the first examples, which paceline.train tries here before it starts any process."
"""Note of an error that was raised in the user's own process."""
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
"""The folder of the package."""


@contextmanager
def told() -> Iterator[None]:
    """A mistake in a user's code becomes a ConfigError with the lines that led to it, since another start would only repeat it.
    What may pass, a file that can't be read or memory, stays as it is."""
    try:
        yield
    except (PacelineError, OSError):
        raise
    except Exception as error:
        lines = own_lines(error)
        if not lines or is_out_of_memory(error):
            raise
        raise ConfigError(f"{said(error)}\n{lines.rstrip()}") from error


def own_lines(error: BaseException) -> str:
    """The frames of an error that are the user's, as a traceback shows them; empty where there are none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
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

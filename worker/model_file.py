"""The file a trained model ends up in (safetensors), which plain torch loads without Paceline:

from safetensors.torch import load_file
model = ...  # the task's model()
model.load_state_dict(load_file("model.safetensors"))
"""

import os
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from paceline.core.errors import DataError, DiskError
from worker.replica import Replica


def save_model(path: Path, replica: Replica, metadata: dict[str, str]) -> None:
    """Writes parameters and buffers and the metadata; a reader sees the old file or the whole new one. DiskError where
    it can't be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(replica.state(), temporary, {"format": "pt", **metadata})
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise DiskError(
            f"Can't write the model to {path}: {error}. Is there space, and may this user write there?"
        ) from error


def load_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Parameters and buffers by name, floats narrower than float32 as float32 (numpy has no bfloat16). DataError where
    the file is missing or damaged."""
    try:
        found = load_file(path)
    except OSError as error:
        raise DataError(
            f"Can't read the model {path}: {error}. Give the path of a file that a run has written."
        ) from error
    except SafetensorError as error:
        raise DataError(f"{path} is not a whole safetensors file: {error}. Use another copy of it.") from error
    return {
        name: (value.float() if value.is_floating_point() and value.itemsize < 4 else value).numpy()
        for name, value in found.items()
    }

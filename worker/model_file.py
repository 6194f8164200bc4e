"""The file a trained model ends up in (safetensors), which plain torch loads without Paceline:

from safetensors.torch import load_file
model = ...  # the task's model()
model.load_state_dict(load_file("model.safetensors"))
"""

import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from paceline.core.errors import DiskError
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

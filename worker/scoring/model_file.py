"""The file a trained model ends up in (safetensors), which plain torch loads without Paceline:

from safetensors.torch import load_file
model = ...  # the task's model()
model.load_state_dict(load_file("model.safetensors"))
"""

from pathlib import Path

from safetensors.torch import save_file

from paceline.data.whole_file import replacing
from paceline.worker.training.model_and_gradient import Replica


def save_model(path: Path, replica: Replica, metadata: dict[str, str]) -> None:
    """Writes parameters and buffers and the metadata; a reader sees the old file or the whole new one. DiskError where
    it can't be written."""
    with replacing(path, "the model") as temporary:
        save_file(replica.state(), temporary, {"format": "pt", **metadata})

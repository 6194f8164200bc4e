"""What a worker and the servers must have set alike, so that Join can compare it."""

from pathlib import PurePath

from paceline.core.settings.config import Config

_SHARED = (
    "task", "model", "workers", "servers", "policy", "optimizer", "schedule", "plan", "codec", "epochs", "budget",
    "batch_size", "batch", "seed", "updates", "svm",
)  # fmt: skip


def agreed_settings(config: Config) -> list[str]:
    """'key=value' for every setting that all processes of a run share. A task's file goes by its name: it may have been moved,
    as the run's folder with a copy of it may."""
    values = config.model_dump(mode="json", include=set(_SHARED)) | {"task": PurePath(config.task).name}
    return [f"{key}={values[key]}" for key in _SHARED] + [f"data.access={config.data.access}"]

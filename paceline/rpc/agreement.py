"""What a worker and the servers must have set alike, so that Join can compare it."""

from paceline.core.config import Config

_SHARED = (
    "task", "model", "workers", "servers", "policy", "optimizer", "schedule", "plan", "codec", "epochs", "budget",
    "batch_size", "batch", "seed", "updates", "svm",
)  # fmt: skip


def agreed_settings(config: Config) -> list[str]:
    """'key=value' for every setting that all processes of a run share."""
    values = config.model_dump(mode="json", include=set(_SHARED))
    return [f"{key}={values[key]}" for key in _SHARED] + [f"data.access={config.data.access}"]

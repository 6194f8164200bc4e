"""What `paceline run` trains for a baseline: sparse rows and class numbers that the engine `paceline` wrote to a folder."""

from pathlib import Path
from typing import Any

from paceline.extend import Dataset, Labelled

SETTINGS: dict[str, Any] = {
    "updates": "sparse",
    "policy": {"name": "asp"},
    "batch_size": 16,
    "batch": "worker",
    "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0},
    "schedule": {"name": "polynomial", "power": 2.0, "lr_scale": "none"},
    "data": {"validation": 0.0, "test": 0.0},
    "svm": {"steps": "fitted", "intercept": True, "average_last": 0.5},
}
PUSHES, MOST = 100, 128
"""Pushes of an epoch at least, and mini-batches of one at most: a few large pushes, since such models have few weights."""
FEATURES, LABELS = "features.npz", "labels.npy"


def data(path: str) -> Dataset:
    """The rows as `write` has them; all of them train."""
    import numpy as np
    from scipy.sparse import csr_array, load_npz

    folder = Path(path)
    return Dataset(Labelled(csr_array(load_npz(folder / FEATURES)), np.load(folder / LABELS)))


def write(folder: Path, features: Any, labels: Any) -> None:
    """Rows (N, D), sparse or dense, and class numbers (N,)."""
    import numpy as np
    from scipy.sparse import csr_array, save_npz

    save_npz(folder / FEATURES, csr_array(features, dtype=np.float32), compressed=False)
    np.save(folder / LABELS, labels)


def batches(rows: int) -> int:
    """Mini-batches of a push, for this many rows."""
    return max(1, min(MOST, rows // (PUSHES * int(SETTINGS["batch_size"]))))

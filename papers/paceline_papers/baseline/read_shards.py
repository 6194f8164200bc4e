"""Reads a folder of shards: what a run trains on and what it tests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import PartName, is_class_label, is_sparse
from paceline.data.files import folder_at
from paceline.data.shards import Shard, open_shards

TABLE = "shards"
"""Its name on the command line."""
TESTS: Sequence[PartName] = ("test", "validation")
"""Parts to test on; the first one that exists."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one part: features (rows, features), a csr_array of float64, and the name of each one's class (rows,)."""

    features: Any
    classes: Any


def read_shards(path: str) -> dict[str, Rows]:
    """The run's own split: `train` has the examples of all shards, each once, `test` the examples that it does not train on.
    DataError: no folder of shards, a damaged one, one without a test part, or labels that are no classes."""
    folder = folder_at(path, "Expected a folder of shards, as `paceline shard` writes it.")
    shards = open_shards(folder)
    held = next((name for name in TESTS if name in shards.manifest.parts), None)
    if held is None:
        raise DataError(f"{folder} holds no test examples. Make shards with data.test above 0.")
    for which in (*range(len(shards)), held):
        shards.verify(which)
    names = shards.manifest.classes
    own = [_rows(shards.shard(number), names, f"{folder}, shard-{number}") for number in range(len(shards))]
    ids = np.concatenate([shards.ids(number) for number in range(len(shards))])
    _, once = np.unique(ids, return_index=True)
    return {"train": _picked(own, once), "test": _rows(shards.part(held), names, f"{folder}, {held}")}


def _rows(part: Shard, names: Sequence[str] | None, where: str) -> Rows:
    from scipy.sparse import csr_array

    labels = np.asarray(part.labels)
    if not is_class_label(labels):  # floats are amounts, whole ones too
        odd = labels[labels != np.round(labels)]
        seen = f"shape {labels.shape}" if labels.ndim != 1 else f"{(odd if len(odd) else labels)[0]}"
        raise DataError(f"{where}: the labels are no classes ({seen}); expected one whole number for each example.")
    features = part.features if is_sparse(part.features) else np.asarray(part.features).reshape(len(labels), -1)
    numbers = labels.astype(np.int64)
    found = numbers.astype(str) if names is None else np.asarray(names)[numbers]
    return Rows(csr_array(features, dtype=np.float64), found)


def _picked(parts: Sequence[Rows], which: Any) -> Rows:
    from scipy.sparse import csr_array, vstack

    return Rows(
        csr_array(vstack([part.features for part in parts], format="csr"))[which],
        np.concatenate([part.classes for part in parts])[which],
    )

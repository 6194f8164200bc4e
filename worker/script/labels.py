"""The labels and features of a user's own data set, for strategies that deal by them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from paceline.core.errors import ConfigError
from paceline.data.dataset import Array, Labelled
from paceline.data.map_style import read_rows
from paceline.worker.script.draws import same_draws

ATTRIBUTES = ("targets", "labels", "y")
KEYS = ("label", "labels")
"""Columns of tables, and keys of rows that are dicts."""
_HINT = "Give one for each row: labels=..., or set data.strategy to random or round_robin."
_ROWS = 16
"""Of a table whose labels are lists, for its fingerprint: the whole column takes seconds in every process."""
Say = Callable[..., None]


def labels_at_hand(dataset: Any) -> Array | None:
    """The labels (N, ...) where the data set has them in one place; None where its rows would have to be read."""
    found = _at_hand(dataset)
    return found if found is None or found.dtype.kind in "biuf" else _numbered(found)


def _at_hand(dataset: Any) -> Array | None:
    """The same, but texts as they are: the same one has the same number in all parts of a data set."""
    if isinstance(dataset, Subset):
        found = _at_hand(dataset.dataset)
        return None if found is None else found[np.asarray(dataset.indices, np.int64)]
    if isinstance(dataset, ConcatDataset):
        return _together([_at_hand(part) for part in dataset.datasets])
    for candidate in _candidates(dataset):
        labels = _raw(candidate)
        if labels is not None and len(labels) == len(dataset):
            return labels
    return None


def as_labels(found: Any) -> Array | None:
    """Labels as an array (N, ...), text as the number of the class; None where they are none."""
    labels = _raw(found)
    return labels if labels is None or labels.dtype.kind in "biuf" else _numbered(labels)


def _raw(found: Any) -> Array | None:
    """Numbers (N, ...) or texts (N,); None where they are neither."""
    if isinstance(found, torch.Tensor):
        found = found.detach().cpu().numpy()
    try:
        labels = np.asarray(found)
    except ValueError:  # lists of several lengths
        return None
    if labels.ndim and labels.dtype.kind in "biuf":
        return labels
    is_text = labels.dtype.kind == "U" or (labels.dtype.kind == "O" and all(isinstance(one, str) for one in labels))
    return labels.astype(object) if labels.ndim == 1 and is_text else None


def _numbered(texts: Array) -> Array:
    return np.unique(texts, return_inverse=True)[1].astype(np.int64)


def given_labels(labels: Any, count: int) -> Array:
    """The labels that the user gave; ConfigError where they are not one for each of `count` rows."""
    found = as_labels(labels)
    if found is None or len(found) != count:
        seen = type(labels).__name__ if found is None else f"{len(found):,}"
        raise ConfigError(f"labels= are {seen}; expected one number or text for each of the {count:,} rows.")
    return found


def read_labels(dataset: Any, seed: int, say: Say) -> Array:
    """The labels of all rows, read one by one, which is said. ConfigError where a row has none."""
    say("reading every row for its label; labels=... would save that", rows=len(dataset))
    with same_draws(seed):
        found = as_labels([_label_of(dataset[number], number) for number in range(len(dataset))])
    if found is None:
        raise ConfigError(f"The labels of the data set's rows are neither numbers nor text. {_HINT}")
    return found


def read_features(dataset: Any, seed: int, say: Say) -> Labelled:
    """All rows as one flat array of numbers; their labels are left out. ConfigError where a row holds no numbers, DataError
    where they are not alike."""
    say("reading every row for its features", rows=len(dataset))
    with same_draws(seed):
        return read_rows(_Features(dataset), "data set")


class _Features:
    """The data set as pairs of flat features and nothing."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> tuple[Array, int]:
        row = self._dataset[number]
        cells = [row]
        if isinstance(row, Mapping):
            cells = [row[key] for key in row if key not in KEYS]
        elif isinstance(row, (tuple, list)):
            cells = list(row[:1])
        flat = [np.asarray(cell) for cell in cells]
        flat = [cell.reshape(-1).astype(np.float32) for cell in flat if cell.dtype.kind in "biuf"]
        if not flat:
            raise ConfigError(
                f"Row {number:,} of the data set holds no numbers to cluster: {_kinds(row)}. Set data.strategy to "
                "random, round_robin or stratified."
            )
        return np.concatenate(flat), 0


def _candidates(dataset: Any) -> Iterator[Any]:
    """What may be its labels: attributes as torchvision has them, the last tensor, columns as HuggingFace has them."""
    for name in ATTRIBUTES:
        found = getattr(dataset, name, None)
        if found is not None and not callable(found):
            yield found
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) > 1:
        yield tensors[-1]
    for key in _columns(dataset):
        if _is_scalar(dataset, key):
            yield dataset[key][:]


def _columns(dataset: Any) -> list[str]:
    """Those of a table that may be its labels."""
    names = getattr(dataset, "column_names", None)
    return [key for key in KEYS if isinstance(names, (list, tuple)) and key in names]


def _is_scalar(dataset: Any, key: str) -> bool:
    """Whether a row of this column holds one value, as far as the table says; no strategy deals by lists."""
    features = getattr(dataset, "features", None)
    kind = features.get(key) if isinstance(features, Mapping) else None
    return kind is None or type(kind).__name__ in ("Value", "ClassLabel")


def some_lists(dataset: Any) -> Iterator[bytes]:
    """What tells two tables apart whose labels are lists: those of a few rows."""
    for key in _columns(dataset):
        for row in np.linspace(0, len(dataset) - 1, _ROWS).astype(int).tolist():
            labels = _plain(dataset[row][key])
            yield repr(labels.tolist() if isinstance(labels, np.ndarray) else labels).encode()


def _together(parts: list[Array | None]) -> Array | None:
    found = [part for part in parts if part is not None]
    alike = {(part.shape[1:], part.dtype.kind == "O") for part in found}
    return np.concatenate(found) if len(found) == len(parts) and len(alike) == 1 else None


def _label_of(row: Any, number: int) -> Any:
    if isinstance(row, Mapping):
        key = next((key for key in KEYS if key in row), None)
        if key is not None:
            return _plain(row[key])
    elif isinstance(row, (tuple, list)) and len(row) > 1:
        return _plain(row[1])
    raise ConfigError(
        f'Row {number:,} of the data set has no label to deal by: {_kinds(row)}, without "label" and without a second part. '
        f"{_HINT}"
    )


def _plain(label: Any) -> Any:
    return label.detach().cpu().numpy() if isinstance(label, torch.Tensor) else label


def _kinds(row: Any) -> str:
    if isinstance(row, Mapping):
        return f"a dict of {', '.join(map(str, row))}"
    if isinstance(row, (tuple, list)):
        return f"a {type(row).__name__} of {', '.join(type(cell).__name__ for cell in row)}"
    return f"a {type(row).__name__}"

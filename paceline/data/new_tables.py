"""Reads a table that a trained model is applied to, by the rules and with the reader of tables for training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import DataError
from paceline.data.as_read import new_lines
from paceline.data.classes import number_classes
from paceline.data.columns import Column, Columns
from paceline.data.dataset import Array
from paceline.data.table import Part, files_of, is_feature, pieces_of, read_known, rows_of

LABELS = ("label", "labels", "target", "class", "y")
"""Columns that hold the label of a table whose columns the model does not know by name, and arrays of an .npz."""


class NewTable(NamedTuple):
    """A table as it was found."""

    features: Any
    """(N, features)"""
    labels: Array | None
    """Names of classes as text, or float32 numbers; None where there are none, or some that can't be read."""
    unscored: str
    """Why they can't be."""
    as_read: tuple[str, ...]
    """How it was read, in lines for people."""


def read_named(path: Path, columns: Columns, are_classes: bool) -> NewTable:
    """Columns are found by their names. A category that is not in the training data is none. DataError: a missing
    column, one that holds another kind of values than in training; a damaged file."""
    return _table(path, columns, read_known(path, columns, are_classes, is_new=True), are_classes)


def read_in_order(path: Path, size: int, are_classes: bool) -> NewTable:
    """Columns of numbers are taken in order, but for one that is called like a label; the names of the first line may be
    missing. DataError: not `size` of them, a cell that holds no number, a damaged file."""
    names = next((piece.table.column_names for piece in pieces_of(files_of(path), needs_names=False)), None)
    if names is None:
        raise DataError(f"{path} has only column names, but no examples.")
    every = [name for name in names if is_feature(name, "")]
    label = min((name for name in names if name.lower() in LABELS), key=lambda name: name.lower() == "y", default="")
    if label.lower() == "y" and len(every) == size:  # a coordinate, like x
        label = ""
    chosen = [name for name in names if is_feature(name, label)]
    if len(chosen) != size:
        beside = f" besides the label {label!r}" if label else f", none of them called {', '.join(LABELS)}"
        raise DataError(
            f"{path} has {len(chosen):,} columns{beside}; the model was trained on {size:,} features without "
            "names, so it needs exactly these, in their order. Leave out the other columns."
        )
    columns = Columns(label=label, features=tuple(Column(name=name) for name in chosen))
    return _table(path, columns, read_known(path, columns, are_classes, is_new=True, needs_names=False), are_classes)


def _table(path: Path, columns: Columns, part: Part, are_classes: bool) -> NewTable:
    features = rows_of(part, columns)
    labels, unscored = part.labels, part.unscored
    if labels is not None and are_classes:
        labels, unscored = _names(labels, f"column {columns.label!r} of {path}")
    return NewTable(features, labels, unscored, new_lines(path, part.forms, part.features, columns))


def _names(labels: Any, what: str) -> tuple[Array | None, str]:
    """What each example's class is called; or why that is not known."""
    try:
        names, (ranks,) = number_classes([labels.names], what)
    except DataError as error:
        return None, str(error).rstrip(".")
    found: Sequence[str] = names
    return np.array(found, object)[ranks][labels.numbers], ""

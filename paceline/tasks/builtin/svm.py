"""A linear model on a table or LIBSVM text: two classes, several, or one against all others (svm.positive)."""

from pathlib import Path

import numpy as np

from paceline.core.errors import DataError
from paceline.core.settings.table import TableConfig
from paceline.data.classes import NOT, name_of
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, ending
from paceline.data.hashed_table import read_hashed
from paceline.data.linear_labels import MOST
from paceline.data.svmlight import read_svmlight
from paceline.data.table import ENDINGS
from paceline.tasks.data_path import users_own

SETTINGS = {
    "updates": "sparse",
    "policy": {"name": "asp"},
    "epochs": 30,
    "batch_size": 16,
    "batch": "worker",
    "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0},
    "schedule": {"name": "polynomial", "power": 2.0, "lr_scale": "none"},
    "data": {"validation": 0.0},
    "svm": {
        "objective": {"loss": "squared_hinge", "c": 1.0},
        "steps": "fitted",
        "intercept": True,
        "average_last": 0.25,
    },
}
"""What LinearSVC makes small by default, at a rate that needs no tuning."""
_APART = 1 << 24
"""From here on float32 does not have every whole number."""
TEST = ".t"
"""What the name of a test file has more than its training file's, as LIBSVM's pages have it: a9a and a9a.t."""


def data(path: str, positive: str | None = None, table: TableConfig | None = None) -> Dataset:
    """Sparse float32 rows. Of two labels the larger one is class 1; more than two are numbered from 0, in rising order; with
    `positive` that label is 1 and all others are 0. 'train,test' are two files; otherwise a file of LIBSVM text next to it
    whose name ends in .t is the test set. Files next to these whose names end in .weight hold their rows' weights. A table
    (.csv, .tsv, .parquet, or a folder of parts) is read as `table` says."""
    users_own(path, "The data set of task svm", "give a table or a file of LIBSVM text, or two: train,test,")
    first, _, second = path.partition(",")
    file = at(first)
    if ending(file) in ENDINGS or file.is_dir():
        found = read_hashed(file, table or TableConfig(), second or None)
    elif table is not None:
        raise DataError(
            f"data.table says how to read a table, but {first} ends in none of {', '.join(ENDINGS)}. Leave data.table out, "
            "or rename the file."
        )
    else:
        beside = file.with_name(file.name + TEST)
        found = _numbered(path, file, at(second) if second else beside if beside.is_file() else None, positive is None)
    return found if positive is None else _told_apart(found, positive, path)


def _numbered(path: str, file: Path, test: Path | None, are_classes: bool) -> Dataset:
    """LIBSVM text with classes from 0. DataError where there is one class only, or labels that can't be classes but must
    be."""
    found = read_svmlight(file, test, classes=False, dense=False)
    sets = [part for _, part in found.sets()]
    labels = np.unique(np.concatenate([part.labels for part in sets]))
    if (large := np.abs(labels).max()) >= _APART:
        raise DataError(
            f"{path} has the label {name_of(float(large))}; whole numbers from {_APART:,} on are not distinct in float32. "
            "Number the classes from 0."
        )
    names = tuple(map(name_of, labels.tolist()))
    if len(names) == 1:
        rows = sum(map(len, sets))
        raise DataError(f"All {rows:,} examples of {path} have the label {names[0]}; expected two classes, or more.")
    if are_classes:
        _check_classes(labels, path)
    parts = [Labelled(part.features, np.searchsorted(labels, part.labels), part.weights) for part in sets]
    return Dataset(*parts, classes=names, as_read=found.as_read)


def _told_apart(found: Dataset, positive: str, path: str) -> Dataset:
    """The class of this name against all others."""
    names = found.classes or ()
    wanted = positive if positive in names else positive.lstrip("+")
    if wanted not in names:
        raise DataError(f"{path} has no class {positive!r} (svm.positive); it has {', '.join(names[:20])}.")
    number = names.index(wanted)
    parts = [
        Labelled(part.features, (part.labels == number).astype(np.int64), part.weights) for _, part in found.sets()
    ]
    others = [name for name in names if name != wanted]
    called = (others[0] if len(others) == 1 else NOT.format(wanted), wanted)
    return Dataset(*parts, classes=called, columns=found.columns, as_read=found.as_read)


def _check_classes(labels: Array, path: str) -> None:
    """DataError where this many labels can't be meant as classes."""
    if len(labels) > MOST or (len(labels) > 2 and (labels != np.round(labels)).any()):
        raise DataError(
            f"{path} has {len(labels):,} different labels; expected up to {MOST:,} classes, of more than two "
            "whole numbers. Set svm.positive to the class that is +1; all others are -1."
        )

"""A linear SVM on LIBSVM text: two classes, or one against all others (svm.positive)."""

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.files import at
from paceline.data.svmlight import read_svmlight
from paceline.tasks.data_path import users_own

SETTINGS = {
    "updates": "sparse",
    "policy": {"name": "asp"},
    "epochs": 20,
    "batch_size": 16,
    "batch": "worker",
    "optimizer": {"name": "sgd", "lr": 0.005, "momentum": 0.0, "weight_decay": 0.0},
    "schedule": {"name": "step", "every": 1, "gamma": 0.9, "lr_scale": "none"},
    "data": {"validation": 0.0},
}
TEST = ".t"
"""What the name of a test file has more than its training file's, as LIBSVM's pages have it: a9a and a9a.t."""


def data(path: str, positive: str | None = None) -> Dataset:
    """Sparse float32 rows; labels 1 and 0, by default the larger and the smaller of two. 'train,test' are two files; else
    a file beside it whose name ends in .t is the test set."""
    users_own(path, "The data set of task svm", "set data.path to a file of LIBSVM text, or to two: train,test")
    first, _, second = path.partition(",")
    file = at(first)
    beside = file.with_name(file.name + TEST)
    test = at(second) if second else beside if beside.is_file() else None
    found = read_svmlight(file, test, classes=False, dense=False)
    sets = [part for _, part in found.sets()]
    classes = np.unique(np.concatenate([part.labels for part in sets]))
    parts = [Labelled(part.features, _signs(part.labels, classes, positive, path)) for part in sets]
    return Dataset(*parts, classes=_names(classes, positive))


def _names(classes: Array, positive: str | None) -> tuple[str, str]:
    """What class 0 and class 1 are called: as in the file, or 'not 3' for all classes but 3."""
    names = [f"{label:g}" for label in classes]
    wanted = names[1] if positive is None else positive.lstrip("+")
    other = next(name for name in names if name != wanted)
    return (other if len(names) == 2 else f"not {wanted}"), wanted


def _signs(labels: Array, classes: Array, positive: str | None, path: str) -> Rows:
    """1 for the positive class, 0 for the rest."""
    names = [f"{label:g}" for label in classes]
    if len(classes) == 1:
        raise DataError(f"All examples of {path} have the label {names[0]}; expected two classes, or more.")
    if positive is None and len(classes) > 2:
        raise DataError(
            f"{path} has {len(classes)} classes ({', '.join(names[:10])}); a linear SVM tells two apart. Set svm.positive to "
            "the one that is +1, against all others."
        )
    wanted = names[1] if positive is None else positive.lstrip("+")
    if wanted not in names:
        raise DataError(f"{path} has no class {positive!r} (svm.positive); it has {', '.join(names[:20])}.")
    found: Rows = np.where(labels == classes[names.index(wanted)], 1, 0)
    return found

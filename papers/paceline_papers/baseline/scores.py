"""What a confusion matrix says of a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def not_zero(weights: Any) -> int | None:
    """How many of a linear model's weights are not 0; None where it has none."""
    return None if weights is None else int(np.count_nonzero(weights))


def scores(confusion: Sequence[Sequence[int]]) -> Mapping[str, Any]:
    """Accuracy and PPV (precision): of each class, their mean, and their mean weighted by the classes' rows. `confusion`: rows
    by class and answer. The PPV of a class that was never the answer is None; in means it counts as 0, as in scikit-learn."""
    found = np.asarray(confusion, np.float64)
    right, answers, own = found.diagonal(), found.sum(0), found.sum(1)
    ppv = np.divide(right, answers, out=np.zeros_like(right), where=answers > 0)
    return {
        "accuracy": float(right.sum() / found.sum()),
        "ppv": [float(value) if count else None for value, count in zip(ppv, answers, strict=True)],
        "ppv_macro": float(ppv.mean()),
        "ppv_weighted": float((ppv * own).sum() / own.sum()),
    }

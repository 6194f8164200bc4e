"""What an error costs at each example of a linear model: by its class (svm.class_weights) and its own weight."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError
from paceline.core.values import Vector
from paceline.data.manifest import Manifest

ClassWeights = Literal["balanced"] | Mapping[str, float] | None


def costs_of(
    labels: npt.NDArray[Any],
    weights: ClassWeights,
    names: Sequence[str],
    counts: Mapping[int, float],
    own: Vector | None = None,
) -> Vector | None:
    """One cost for each of these class numbers (N,); None where all are 1. `names`: of the classes, by number; `counts`: what
    the training examples of each class count; `own`: the examples' own weights. ConfigError: weights for a class that has no
    examples."""
    by_class = _by_class(weights, names, counts)
    if by_class is None:
        return own
    found: Vector = by_class[np.asarray(labels, np.int64)]
    return found if own is None else found * own


def class_counts(manifest: Manifest) -> Mapping[int, float]:
    """Training examples of each class, those of several shards as often as they occur; where they have weights, the sum of
    these."""
    if manifest.train_weights is not None:
        return {int(label): weight for label, weight in manifest.train_weights.items()}
    found: Counter[int] = Counter()
    for entry in manifest.shards:
        found.update({int(label): count for label, count in entry.classes.items()})
    return found


def counted(labels: npt.NDArray[Any], own: Vector | None = None) -> Mapping[int, float]:
    """How often each class number occurs; with the examples' own weights, what they count."""
    there, which = np.unique(labels, return_inverse=True)
    return dict(zip(there.tolist(), np.bincount(which, own).tolist(), strict=True))


def named(names: Sequence[str], numbers: Iterable[int]) -> tuple[str, ...]:
    """What classes are called: their names, or their numbers where they have none."""
    return tuple(names) or tuple(str(number) for number in range(max(numbers, default=1) + 1))


def _by_class(weights: ClassWeights, names: Sequence[str], counts: Mapping[int, float]) -> Vector | None:
    if weights is None:
        return None
    called = named(names, counts)
    if weights == "balanced":
        there, total = [count for count in counts.values() if count], sum(counts.values())
        each = [total / (len(there) * (counts.get(number) or 1)) for number in range(len(called))]
        return np.array(each, np.float32)
    assert isinstance(weights, Mapping)
    for name in weights:
        if name.lstrip("+") not in called:
            raise ConfigError(
                f"svm.class_weights has a weight for the class {name!r}, but the data has only "
                f"{', '.join(called[:20])}."
            )
    plain = {name.lstrip("+"): weight for name, weight in weights.items()}
    return np.array([plain.get(name, 1.0) for name in called], np.float32)

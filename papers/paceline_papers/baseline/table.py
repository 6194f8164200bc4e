"""A table with a label: which columns it has, and a made-up one of the same shape."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
MISSING = 0.02
"""Share of empty cells in a made-up column that has some."""


@dataclass(frozen=True, slots=True)
class MadeUp:
    """A made-up table. `best`: the accuracy of a model that knows each row's probabilities; no other can expect more."""

    columns: dict[str, Any]
    """Arrow arrays by column, the label's too."""
    best: float


class Table(ABC):
    """Columns by their kind; one table a file. A date counts as month, weekday and hour, as texts."""

    texts: ClassVar[Sequence[str]]
    numbers: ClassVar[Sequence[str]] = ()
    dates: ClassVar[Sequence[str]] = ()
    date_form: ClassVar[str] = "%Y-%m-%dT%H:%M:%S"
    label: ClassVar[str]
    rows: ClassVar[int]
    """Of the real table."""

    @abstractmethod
    def made_up(self, rows: int, rng: np.random.Generator) -> MadeUp:
        """That many rows with the real table's columns, kinds and numbers of different texts."""


def zipf(rng: np.random.Generator, rows: int, kinds: int, power: float = 1.0) -> Whole:
    """Numbers below `kinds`, of which the first are frequent, as employers and streets are."""
    weights = 1 / np.arange(1, kinds + 1) ** power
    return rng.choice(kinds, rows, p=weights / weights.sum())


def labelled(rng: np.random.Generator, pulls: Floats, shares: Sequence[float]) -> tuple[Whole, float]:
    """Class numbers, drawn from the softmax of pulls (rows, classes) plus an offset for each class, which makes the classes'
    shares as given; and the best accuracy."""
    wanted, offsets = np.array(shares), np.log(shares)
    for _ in range(20):
        offsets = offsets + np.log(wanted / _softmax(pulls + offsets).mean(0))
    chances = _softmax(pulls + offsets)
    drawn = (rng.random((len(pulls), 1)) > chances.cumsum(1)[:, :-1]).sum(1)
    return drawn, float(chances.max(1).mean())


def _softmax(pulls: Floats) -> Floats:
    powers = np.exp(pulls - pulls.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def texts(numbers: Whole, word: str, rng: np.random.Generator | None = None) -> Any:
    """'word 7' for each number, as an Arrow array; with `rng` some cells are empty."""
    import pyarrow as pa

    names, codes = np.unique(numbers, return_inverse=True)
    found = pa.DictionaryArray.from_arrays(_some(codes, rng), [f"{word} {name}" for name in names.tolist()])
    return found.cast(pa.string())


def named(numbers: Whole, names: Sequence[str], rng: np.random.Generator | None = None) -> Any:
    """The names of these numbers, as an Arrow array; with `rng` some cells are empty."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(_some(numbers, rng), list(names)).cast(pa.string())


def numbers(values: npt.NDArray[np.floating[Any]], rng: np.random.Generator | None = None) -> Any:
    """An Arrow array; with `rng` some cells are empty."""
    return _some(values, rng)


def _some(values: Any, rng: np.random.Generator | None) -> Any:
    import pyarrow as pa

    return pa.array(values, mask=None if rng is None else rng.random(len(values)) < MISSING)

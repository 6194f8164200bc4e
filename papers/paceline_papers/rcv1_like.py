"""Makes sparse rows that are like RCV1's, as many as wanted, since the real ones may not be handed on."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError, DiskError
from paceline.core.linear.sparse import distinct
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.out_of_core import Growing, GrowingRows, ranges
from paceline.data.rcv1 import FEATURES, TESTS, TOPICS, TRAIN

TRAIN_ROWS = 23_149
BLOCK = 8192
"""Rows that are made together; each block has its own stream of random numbers."""
SKEW, FALL = 60.0, 1.4
"""The feature of rank r comes with a probability like (r + SKEW)^-FALL, r from 1; fits the 1,000 rows of RCV1 that Vowpal
Wabbit ships, where the most frequent features are in 44, 25, 11, 1.7 and .2 % of the rows (ranks 1, 10, 100, 1000, 5000)."""
TOKENS, SPREAD, FEWEST, MOST = 83.0, 0.65, 10.0, 600.0
"""Words of a row: their mean, the standard deviation of the logarithm, and the bounds."""
POSITIVE = 0.47
"""Share of the rows of class 1, as of CCAT."""
POLAR, STRENGTH = 1 << 17, 0.9
"""Features of a rank below POLAR tell the classes apart; the strongest one is (1 + STRENGTH) / (1 - STRENGTH) times as
frequent in one class as in the other."""


def rcv1_like(
    train: int = TRAIN_ROWS, test: int = TRAIN_ROWS, features: int = FEATURES, seed: int = 0, noise: float = 0.02
) -> Dataset:
    """float32 features (N, features), a scipy.sparse.csr_array of unit rows with about 76 positive values, like tf-idf;
    labels int64 0 or 1. Which features are frequent in which class is a planted separator (the classes' log odds are linear
    in the words' counts); then `noise` (share) of the labels are turned round: with the default sizes a good linear SVM
    comes to 92 to 94 % of the test rows. The first rows are the same whatever their number. ConfigError: impossible sizes."""
    if train < 1 or test < 0 or not 1 <= features < 1 << 31 or not 0 <= noise < 0.5:
        raise ConfigError(
            f"Got {train:,} training rows, {test:,} test rows, {features:,} features and noise {noise:g}; "
            "expected at least 1 training row, 1 to 2^31 - 1 features, and noise from 0 to below .5."
        )
    words = _Words(features, seed)
    return Dataset(words.labelled(0, train, noise), words.labelled(1, test, noise) if test else None)


def write_svmlight(rows: Labelled, path: str | Path) -> None:
    """Writes the rows as LIBSVM text, classes 0 and 1 as -1 and +1, indices from 1. DiskError where that fails."""
    _write(
        Path(path), (f"{2 * label - 1:+d} {pairs}\n" for label, pairs in zip(rows.labels, _pairs(rows), strict=True))
    )


def write_lyrl2004(data: Dataset, folder: str | Path, topic: str = "CCAT") -> None:
    """Writes the vectors and topics as RCV1's authors publish them: rows of class 1 have `topic`, all have ALL; documents
    are numbered from 1. A test set is cut into four files. DiskError where that fails."""
    folder, first = Path(folder), 1
    judgements: list[str] = []
    for _, rows in data.sets():
        documents = range(first, first + len(rows))
        lines = (f"{document}  {pairs}\n" for document, pairs in zip(documents, _pairs(rows), strict=True))
        files = (TRAIN,) if rows is data.train else TESTS
        for file, part in zip(files, np.array_split(np.arange(len(rows)), len(files)), strict=True):
            _write(folder / file, (next(lines) for _ in part))
        for document, label in zip(documents, rows.labels, strict=True):
            judgements += [f"{topic} {document} 1\n"] * int(label) + [f"ALL {document} 1\n"]
        first += len(rows)
    _write(folder / TOPICS, iter(judgements))


class _Words:
    """How frequent every feature is, in both classes."""

    def __init__(self, features: int, seed: int) -> None:
        self._features = features
        self._seed = seed
        self._low, self._high = ((rank + SKEW) ** (1 - FALL) for rank in (1, features + 1))
        # the golden ratio's multiples are spread so evenly that data of any seed are equally hard
        leaning = (np.random.default_rng([seed, 2]).random() + 0.618034 * np.arange(min(features, POLAR))) % 1 * 2 - 1
        self._polarity = np.append(STRENGTH * leaning**5, 0).astype(np.float32)
        # a feature's number is its rank times this, so that frequent ones are spread over all numbers
        self._factor = next(
            k for k in range(round(0.618 * features) or 1, 2 * features + 1) if math.gcd(k, features) == 1
        )
        self._inverse = pow(self._factor, -1, features)

    def labelled(self, part: int, count: int, noise: float) -> Labelled:
        """The first `count` rows of the training (0) or test set (1)."""
        found: GrowingRows | None = None
        labels = Growing(np.int64)
        for block, start in enumerate(range(0, count, BLOCK)):
            rng = np.random.default_rng([self._seed, part, block])
            rows, classes = self._block(rng)
            turned = classes ^ (rng.random(BLOCK) < noise)
            found = found or GrowingRows(rows)
            found.append(rows[: count - start])
            labels.append(turned[: count - start])
        assert found is not None
        return Labelled(found.array(), labels.array())

    def _block(self, rng: np.random.Generator) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Sparse rows and their classes, without noise."""
        from scipy.sparse import csr_array

        classes = rng.random(BLOCK) < POSITIVE
        tokens = np.exp(rng.normal(math.log(TOKENS) - SPREAD**2 / 2, SPREAD, BLOCK)).clip(FEWEST, MOST)
        owner = np.repeat(np.arange(BLOCK), (tokens * (1 + STRENGTH)).astype(np.int64))
        ranks = self._ranks(rng.random(len(owner)))
        leaning = self._polarity[np.minimum(ranks, len(self._polarity) - 1)]
        chance = (1 + np.where(classes, 1, -1)[owner] * leaning) / (1 + STRENGTH)
        kept = rng.random(len(owner)) < chance
        keys = distinct(owner[kept] * self._features + ranks[kept] * self._factor % self._features)
        owner, indices = np.divmod(keys, self._features)
        values = (1 + np.log(rng.geometric(0.6, len(keys)))) * self._rarity(indices * self._inverse % self._features)
        values /= np.sqrt(np.bincount(owner, values**2, BLOCK))[owner]
        ends = np.searchsorted(owner, np.arange(BLOCK + 1))
        shape = (BLOCK, self._features)
        return csr_array((values.astype(np.float32), indices.astype(np.int32), ends), shape), classes

    def _ranks(self, uniform: Array) -> Rows:
        """Ranks from 0, by the inverse of their distribution."""
        drawn = (self._low + uniform * (self._high - self._low)) ** (1 / (1 - FALL)) - SKEW
        ranks: Rows = np.minimum(drawn.astype(np.int64) - 1, self._features - 1)
        return ranks

    def _rarity(self, ranks: Rows) -> Array:
        """The logarithm of rows per row that has the feature of this rank."""
        chance = (ranks + 1 + SKEW) ** -FALL * (FALL - 1) / (self._low - self._high)
        rarity: Array = -np.log(-np.expm1(-TOKENS * chance))
        return np.maximum(rarity, 0.01)  # a feature that all rows have counts, too


def _pairs(rows: Labelled) -> Iterator[str]:
    """'index:value index:value ...' of each row, indices from 1, values such that float32 keeps its bits."""
    for start, stop in ranges(len(rows), BLOCK):
        part = rows.features[start:stop]
        words = [
            f"{index}:{value:.9g}" for index, value in zip((part.indices + 1).tolist(), part.data.tolist(), strict=True)
        ]
        for first, last in zip(part.indptr[:-1].tolist(), part.indptr[1:].tolist(), strict=True):
            yield " ".join(words[first:last])


def _write(path: Path, lines: Iterator[str]) -> None:
    try:
        with path.open("w") as file:
            file.writelines(lines)
    except OSError as error:
        raise DiskError(f"Can't write {path}: {error.strerror}. Free some space, or choose another folder.") from error

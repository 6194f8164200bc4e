"""How the columns of a table become features: by the stages of an MLlib pipeline, and the same by Arrow and scikit-learn."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.core.registry import find
from paceline_papers.baseline.split import Split

MOST = 100
"""Texts of a column that differ; all others count as one."""
OTHER = "(other)"
FEATURES = "features"
ENCODINGS = "paceline_papers.baseline.encodings"


class Encoding(ABC):
    """One way; one file each. All is fitted on the training part."""

    @abstractmethod
    def stages(self, split: Split) -> list[Any]:
        """Of an MLlib pipeline; the last one makes the column `features`."""

    @abstractmethod
    def arrays(self, split: Split) -> tuple[Any, Any]:
        """Features of training and test part (rows, features), for scikit-learn."""


def encoding(name: str) -> Encoding:
    """ConfigError: there is none of this name."""
    return find(ENCODINGS, Encoding, name)()


def indexed(split: Split) -> list[Any]:
    """MLlib's stages from texts to their indexes, the most frequent one is 0: columns `index 0`, `index 1`, ..."""
    from pyspark.ml.feature import StringIndexer

    from paceline_papers.baseline.stages.frequent import Frequent

    out = columns("index", split.texts)
    indexer = StringIndexer(inputCols=list(split.texts), outputCols=out, handleInvalid="keep")
    return [Frequent(split.texts), indexer]


def scaled(split: Split) -> list[Any]:
    """MLlib's stage from numbers to columns `scaled 0`, `scaled 1`, ..."""
    from paceline_papers.baseline.stages.scaled import Scaled

    return [Scaled(split.numbers, columns("scaled", split.numbers))]


def columns(word: str, of: Sequence[str]) -> list[str]:
    """'word 0', 'word 1', ...: names of the columns that a stage makes of these."""
    return [f"{word} {number}" for number in range(len(of))]


def assembled(*given: str) -> Any:
    """MLlib's stage that puts columns together as `features`."""
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=list(given), outputCol=FEATURES)


def index_arrays(split: Split) -> tuple[Any, Any]:
    """Indexes of the texts in training and test part (rows, columns), as MLlib's stages give them; int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    train, test = split.columns("train"), split.columns("test")

    def coded(name: str) -> tuple[Any, Any]:
        kept = pa.array(_by_frequency(train[name])[:MOST])
        own, other = (pc.if_else(pc.is_in(part[name], kept), part[name], OTHER) for part in (train, test))
        order = _by_frequency(own)
        return tuple(
            pc.fill_null(pc.index_in(part, pa.array(order)), len(order)).to_numpy().astype(np.int64)
            for part in (own, other)
        )

    pairs = [coded(name) for name in split.texts]
    return np.column_stack([own for own, _ in pairs]), np.column_stack([other for _, other in pairs])


def _by_frequency(column: Any) -> list[str]:
    import pyarrow.compute as pc

    counts = pc.value_counts(column).to_pylist()
    return [each["values"] for each in sorted(counts, key=lambda each: (-each["counts"], each["values"]))]


def number_arrays(split: Split) -> tuple[Any, Any]:
    """Numbers of training and test part (rows, columns), as `scaled` makes them; float64."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    train, test = (
        np.column_stack([part[name].to_numpy() for name in split.numbers])
        for part in (split.columns("train"), split.columns("test"))
    )
    fitted = make_pipeline(SimpleImputer(), MinMaxScaler(clip=True)).fit(train)
    return fitted.transform(train), fitted.transform(test)


def labels(split: Split) -> tuple[Any, Any]:
    """Class numbers of training and test part (rows,); int64."""
    train, test = (split.columns(part)["label"].to_numpy().astype(np.int64) for part in ("train", "test"))
    return train, test

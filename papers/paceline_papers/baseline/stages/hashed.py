"""A stage of MLlib's pipelines that hashes texts as the sharder does; MLlib's own FeatureHasher takes other places."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyspark.ml.base import Transformer
from pyspark.ml.linalg import SparseVector, VectorUDT
from pyspark.sql.functions import col, udf

from paceline.data.hashing import feature_index


class Hashed(Transformer):  # type: ignore[misc]
    """Adds a column of vectors: how often each place occurs among those of a row's texts."""

    def __init__(self, columns: Sequence[str], out: str, bits: int) -> None:
        super().__init__()
        self._columns, self._out, self._bits = list(columns), out, bits

    def _transform(self, dataset: Any) -> Any:
        names, bits = self._columns, self._bits

        def hashed(*texts: str) -> Any:
            found = Counter(feature_index(name, text, bits) for name, text in zip(names, texts, strict=True))
            return SparseVector(1 << bits, dict(found))

        return dataset.withColumn(
            self._out, udf(hashed, VectorUDT(), useArrow=False)(*(col(f"`{name}`") for name in names))
        )

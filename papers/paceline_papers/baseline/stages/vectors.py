"""A stage of MLlib's pipelines that makes sparse vectors of lists of indices and values."""

from typing import Any

from pyspark.ml.base import Transformer
from pyspark.ml.linalg import SparseVector, VectorUDT
from pyspark.sql.functions import udf

from paceline_papers.baseline.encoding import FEATURES
from paceline_papers.baseline.split import INDICES, VALUES


class Vectors(Transformer):  # type: ignore[misc]
    """Adds the column `features`."""

    def __init__(self, width: int) -> None:
        """`width`: features of a row."""
        super().__init__()
        self._width = width

    def _transform(self, dataset: Any) -> Any:
        width = self._width
        made = udf(lambda indices, values: SparseVector(width, indices, values), VectorUDT())
        return dataset.withColumn(FEATURES, made(INDICES, VALUES))

"""A stage of MLlib's pipelines that keeps the most frequent texts of each column, for a tree takes few and one-hot vectors get
long."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.ml.base import Estimator, Model
from pyspark.sql import Window
from pyspark.sql import functions as sql

from paceline_papers.baseline.encoding import MOST, OTHER


class Frequent(Estimator):  # type: ignore[misc]
    """Finds the `MOST` most frequent texts of each column, in one job."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self._columns = columns

    def _fit(self, dataset: Any) -> "FrequentModel":
        cells = [
            sql.struct(sql.lit(number).alias("column"), sql.col(f"`{name}`").alias("text"))
            for number, name in enumerate(self._columns)
        ]
        counts = dataset.select(sql.inline(sql.array(*cells))).groupBy("column", "text").count()
        place = sql.row_number().over(Window.partitionBy("column").orderBy(sql.desc("count"), "text"))
        kept = defaultdict(list)
        for row in counts.withColumn("place", place).filter(sql.col("place") <= MOST).collect():
            kept[self._columns[row["column"]]].append(row["text"])
        return FrequentModel(kept)


class FrequentModel(Model):  # type: ignore[misc]
    """Replaces all other texts of its columns."""

    def __init__(self, kept: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self._kept = kept

    def _transform(self, dataset: Any) -> Any:
        return dataset.withColumns(
            {
                name: sql.when(sql.col(f"`{name}`").isin(list(kept)), sql.col(f"`{name}`")).otherwise(OTHER)
                for name, kept in self._kept.items()
            }
        )

"""A stage of MLlib's pipelines for numbers: the mean in empty cells, then from 0 to 1. MLlib's own MinMaxScaler leaves
that range where the test part has a smaller number, and naive Bayes takes none below 0."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.ml.base import Estimator, Model
from pyspark.sql import functions as sql


class Scaled(Estimator):  # type: ignore[misc]
    """Finds mean, least and largest number of each column, in one job."""

    def __init__(self, columns: Sequence[str], out: Sequence[str]) -> None:
        super().__init__()
        self._columns, self._out = columns, out

    def _fit(self, dataset: Any) -> "ScaledModel":
        there = [sql.nanvl(sql.col(f"`{name}`"), sql.lit(None)) for name in self._columns]
        (row,) = dataset.select([of(each) for each in there for of in (sql.mean, sql.min, sql.max)]).collect()
        found = [value or 0.0 for value in row]
        laws = list(zip(found[::3], found[1::3], found[2::3], strict=True))
        return ScaledModel(dict(zip(self._out, zip(self._columns, laws, strict=True), strict=True)))


class ScaledModel(Model):  # type: ignore[misc]
    """Adds the scaled columns."""

    def __init__(self, laws: Mapping[str, tuple[str, tuple[float, float, float]]]) -> None:
        super().__init__()
        self._laws = laws

    def _transform(self, dataset: Any) -> Any:
        return dataset.withColumns({out: _scaled(name, *law) for out, (name, law) in self._laws.items()})


def _scaled(name: str, mean: float, least: float, largest: float) -> Any:
    filled = sql.nanvl(sql.col(f"`{name}`"), sql.lit(mean))
    share = (filled - least) / ((largest - least) or 1.0)
    return sql.least(sql.greatest(share, sql.lit(0.0)), sql.lit(1.0))

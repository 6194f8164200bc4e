"""The process that trains with MLlib: `python -m paceline.baseline.mllib_process PARENT FD SPEC`. It writes a line of JSON to
the pipe FD for each training, and one for an error."""

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from paceline.baseline.encoding import FEATURES, encoding
from paceline.baseline.engine import Found, Point
from paceline.baseline.mllib import ERROR, POINT
from paceline.baseline.split import LABEL, Split
from paceline.core.errors import PacelineError
from paceline.local.end_with_parent import end_with
from paceline.sharder.spark_session import spark_session

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.files.minPartitionNum": "8",  # a task for each file of a small table
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.shuffle.partitions": "8",
}

WARM = 2_000
"""Rows of the training part that a model is first trained on in a new session: Java is slow until it has compiled itself."""


def main() -> None:
    """As the module's docstring says."""
    parent, pipe, spec = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    end_with(parent)
    with os.fdopen(pipe, "w", buffering=1) as lines:
        try:
            for point, found in train(spec):
                lines.write(json.dumps({POINT: point, **found}) + "\n")
        except PacelineError as error:
            lines.write(json.dumps({ERROR: type(error).__name__, "message": str(error)}) + "\n")


def train(spec: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Found]]:
    """Each point and what it gave; features are made once for neighbours with the same encoding and storage."""
    split = Split.of(Path(spec["folder"]))
    memory = f"{spec['memory']}m"
    settings = {**SETTINGS, "spark.driver.memory": memory, "spark.executor.memory": memory}
    with spark_session(spec["master"], "paceline baseline", "MLlib", f"it is {spec['master']}", settings) as spark:
        warm: set[tuple[str, str]] = set()
        for (name, storage), points in groupby(spec["points"], lambda point: (point["encoding"], point["storage"])):
            start = time.perf_counter()
            parts = _prepared(spark, split, name, storage)
            preparing = time.perf_counter() - start
            for given in points:
                point = Point(**given)
                if (point.kind, name) not in warm:
                    warm.add((point.kind, name))
                    point.model.mllib(1).fit(parts[0].sample(min(1.0, WARM / split.train_rows), seed=0))
                yield given, {"preparing": preparing, **_trained(point, parts, len(split.classes))}
            for part in parts:
                part.unpersist()


def _prepared(spark: Any, split: Split, name: str, storage: str) -> list[Any]:
    """Features and labels of training and test part, kept in memory or on disk."""
    from pyspark import StorageLevel
    from pyspark.ml import Pipeline

    level = {"memory": StorageLevel.MEMORY_ONLY, "disk": StorageLevel.DISK_ONLY}[storage]
    train, test = (spark.read.parquet(str(split.folder / part)) for part in ("train", "test"))
    fitted = Pipeline(stages=encoding(name).stages(split)).fit(train)
    parts = [fitted.transform(part).select(FEATURES, LABEL).persist(level) for part in (train, test)]
    for part in parts:
        part.count()
    return parts


def _trained(point: Point, parts: list[Any], classes: int) -> Found:
    train, test = parts
    estimator = point.model.mllib(point.setting)
    start, cpu = time.perf_counter(), cpu_seconds()
    fitted = estimator.fit(train)
    training, used = time.perf_counter() - start, cpu_seconds() - cpu
    start = time.perf_counter()
    confusion = [[0] * classes for _ in range(classes)]
    answered = fitted.transform(test)
    for row in answered.groupBy(LABEL, "prediction").count().collect():
        confusion[int(row[LABEL])][int(row["prediction"])] = row["count"]
    testing = time.perf_counter() - start
    return {
        "training": training,
        "testing": testing,
        "cpu": used,
        "confusion": confusion,
        "log_loss": _log_loss(answered) if point.model.tells_chances else None,
    }


def _log_loss(answered: Any) -> float:
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator

    return float(MulticlassClassificationEvaluator(metricName="logLoss").evaluate(answered))


def cpu_seconds() -> float:
    """That this process and all that it has started have used, executors' too."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    main()

"""The process that trains with MLlib: `python -m paceline_papers.baseline.mllib_process PIPE SPEC`. It writes a line of
JSON to the pipe for each training, and one for an error."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from paceline.core.errors import ConfigError, PacelineError
from paceline.sharder.spark_session import spark_session
from paceline_papers.baseline.encoding import FEATURES, encoding
from paceline_papers.baseline.engine import Found, Point
from paceline_papers.baseline.kill import PATIENCE, Kill, Killer, comparable, jobs_of
from paceline_papers.baseline.mllib import ERROR, POINT
from paceline_papers.baseline.scores import not_zero
from paceline_papers.baseline.split import LABEL, Split

SETTINGS = {
    "spark.sql.files.minPartitionNum": "8",  # a task for each file of a small table
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.shuffle.partitions": "8",
}

WARM = 2_000
"""Rows of the training part that a model is first trained on in a new session: Java is slow until it has compiled itself."""


def main() -> None:
    """As the module's docstring says."""
    pipe, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    with pipe.open("w", buffering=1) as lines:
        try:
            for point, found in train(spec):
                lines.write(json.dumps({POINT: point, **found}) + "\n")
        except PacelineError as error:
            lines.write(json.dumps({ERROR: type(error).__name__, "message": str(error)}) + "\n")


def train(spec: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Found]]:
    """Each point and what it gave; features are made once for neighbours with the same encoding and storage."""
    split = Split.of(Path(spec["folder"]))
    settings, master = {**SETTINGS, **spec["settings"]}, spec["master"]
    told = f"it is {spec.get('called', master)}"
    begun = time.perf_counter()
    with spark_session(master, "paceline baseline", "MLlib", told, settings) as spark:
        if spec.get("executors"):
            _wait_for(spark, spec["executors"])
        starting = time.perf_counter() - begun
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
                fitted, found = _killed(spark, point, parts[0]) if spec["kill"] else _fitted(point, parts[0])
                tested = _tested(point, fitted, parts[1], len(split.classes))
                weights = not_zero(point.model.mllib_weights(fitted))
                if spec.get("executors"):
                    found["there"] = _executors(spark)
                yield given, {"starting": starting, "preparing": preparing, **found, **tested, "weights": weights}
            for part in parts:
                part.unpersist()


def _wait_for(spark: Any, count: int) -> None:
    """ConfigError where the cluster does not give as many executors."""
    until = time.monotonic() + PATIENCE
    while (there := _executors(spark)) < count:
        if time.monotonic() > until:
            raise ConfigError(
                f"{there} of {count} executors came in {PATIENCE:.0f} s. Give fewer --executors, or the cluster more room."
            )
        time.sleep(0.2)


def _executors(spark: Any) -> int:
    """How many the session has; the driver counts as one there."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


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


def _fitted(point: Point, train: Any) -> tuple[Any, Found]:
    estimator = point.model.mllib(point.setting)
    start, cpu = time.perf_counter(), cpu_seconds()
    fitted = estimator.fit(train)
    training, now = time.perf_counter() - start, cpu_seconds()
    return fitted, {"training": training, "cpu": sum(used - cpu.get(pid, 0.0) for pid, used in now.items())}


def _killed(spark: Any, point: Point, train: Any) -> tuple[Any, Found]:
    """The same with an executor that dies, after a training in which none does. CPU seconds lack those of the dead one."""
    (whole, _), jobs = jobs_of(spark, f"{point.name}, whole", lambda: _fitted(point, train))
    with Killer(spark, point.name, jobs, point.executors) as killer:
        (fitted, found), _ = jobs_of(spark, point.name, lambda: _fitted(point, train))
    if not killer.job:
        raise PacelineError(
            f"{point.name}: the training was over before an executor could be killed. Give more --rows."
        )
    ours, other = (point.model.mllib_numbers(each) for each in (whole, fitted))
    return fitted, {**found, "kill": asdict(Kill(killer.job, jobs, len(ours), comparable(ours, other)))}


def _tested(point: Point, fitted: Any, test: Any, classes: int) -> Found:
    start = time.perf_counter()
    confusion = [[0] * classes for _ in range(classes)]
    answered = fitted.transform(test)
    for row in answered.groupBy(LABEL, "prediction").count().collect():
        confusion[int(row[LABEL])][int(row["prediction"])] = row["count"]
    testing = time.perf_counter() - start
    return {
        "testing": testing,
        "confusion": confusion,
        "log_loss": _log_loss(answered) if point.model.tells_chances else None,
    }


def _log_loss(answered: Any) -> float:
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator

    return float(MulticlassClassificationEvaluator(metricName="logLoss").evaluate(answered))


def cpu_seconds() -> dict[int, float]:
    """That this process and all that it has started have used, executors' too, by process."""
    found = {}
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


if __name__ == "__main__":
    main()

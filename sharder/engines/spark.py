"""spark: a cluster does it, with Spark and MLlib's KMeans, for data that one machine reads too slowly or can't hold."""

import functools
import math
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from paceline.core.errors import DiskError
from paceline.data.dataset import Dataset, Rows, Selection
from paceline.data.progress import SILENT, Progress
from paceline.data.shard_arrays import Files, write_arrays
from paceline.sharder.clustering import TOLERANCE, Clustering, Directions, cluster, hand_on, summary
from paceline.sharder.engine import Engine, Source
from paceline.sharder.spark_session import spark_session

PIECES = 8
"""Pieces that one task checks and hashes: 128 MiB, as much as Spark's own readers take."""
ROWS = 1 << 14
"""Examples that one task sums up for KMeans; the same on any cluster, so that equal seeds give equal clusters."""
EVERY = 0.5
"""Seconds from one look at how far a job is to the next."""
T = TypeVar("T")


class Spark(Engine):
    """Reads the examples in Spark's tasks, each of which opens the data set by itself; only row numbers, hashes and the
    numbers of clusters pass through the driver. Principal components come from the same sample as those of `local`.
    An existing Spark session is used as it is."""

    master: str | None = Field(
        None,
        description="Spark's master, like local[2] or spark://host:7077; default: what spark-submit says, or local[*].",
    )

    def digest(self, source: Source, progress: Progress) -> str:
        dataset = source.dataset
        pieces = dataset.pieces()
        with _spark(self.master) as spark:
            sent, done = _sent(spark, source), spark.sparkContext.accumulator(0)

            def digest(piece: Any) -> bytes:
                found = _opened(sent.value).piece_digest(piece)
                done.add(piece.stop - piece.start)
                return found

            job = spark.sparkContext.parallelize(pieces, math.ceil(len(pieces) / PIECES)).map(digest)
            return dataset.digest(_watched(job.collect, done, progress))

    def cluster(
        self, source: Source, train: Selection, how: Clustering, rng: np.random.Generator, progress: Progress
    ) -> Rows:
        def on_spark(directions: Directions, seeds: list[int]) -> Rows:
            if how.clusters == 1:  # MLlib takes no less than two
                return np.zeros(len(train), np.int64)
            with _spark(self.master) as spark:
                done = spark.sparkContext.accumulator(0)
                points = _points(spark, source, train.rows, directions, done)
                try:
                    clusters, centres = _kmeans(
                        points, len(train), how, seeds, lambda work: _watched(work, done, progress)
                    )
                    hand_on(how, directions, centres)
                    return clusters
                finally:
                    points.unpersist()

        return cluster(train, how, rng, progress, on_spark)

    def write(
        self, source: Source, draft: Path, parts: Mapping[str, Selection], progress: Progress
    ) -> dict[str, Files]:
        sets = {id(part): name for name, part in source.dataset.sets()}
        items = [(name, sets[id(part.source)], part.rows, part.first_id) for name, part in parts.items()]
        with _spark(self.master) as spark:
            sent, done = _sent(spark, source), spark.sparkContext.accumulator(0)

            def write(item: Any) -> dict[str, Files]:
                name, of, rows, first_id = item
                part = Selection(getattr(_opened(sent.value), of), rows, first_id)
                with _on_shared_volume(draft, name):
                    files = write_arrays(draft, {name: part}, SILENT)
                done.add(len(rows))
                return files

            job = spark.sparkContext.parallelize(items, len(items)).map(write)
            return {name: files for part in _watched(job.collect, done, progress) for name, files in part.items()}


def _points(spark: Any, source: Source, rows: Rows, directions: Directions, done: Any) -> Any:
    """The examples at these rows of the training set, summed up: a data frame of their positions and points, kept."""
    from pyspark.ml.linalg import DenseVector, VectorUDT
    from pyspark.sql.types import LongType, StructType

    sent, shared = _sent(spark, source), spark.sparkContext.broadcast(directions)

    def points(item: Any) -> Iterator[Any]:
        start, own = item
        for position, point in enumerate(summary(Selection(_opened(sent.value).train, own), shared.value), start):
            yield position, DenseVector(point)
        done.add(len(own))

    items = [(start, rows[start : start + ROWS]) for start in range(0, len(rows), ROWS)]
    schema = StructType().add("position", LongType()).add("point", VectorUDT())
    found = spark.sparkContext.parallelize(items, len(items)).flatMap(points)
    return spark.createDataFrame(found, schema, verifySchema=False).persist()


def _kmeans(
    points: Any, count: int, how: Clustering, seeds: list[int], watched: Callable[[Any], Any]
) -> tuple[Rows, Any]:
    """Clusters and their centres by MLlib's KMeans from the best of several starts, which it makes again from the seed;
    `watched` runs the first job, in which the points are made."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.stat import Summarizer

    variance = watched(points.select(Summarizer.variance(points.point)).first)[0]
    move = math.sqrt(TOLERANCE * float(variance.toArray().mean()))

    def run(seed: int, iterations: int) -> Any:
        return KMeans(featuresCol="point", k=how.clusters, maxIter=iterations, tol=move, seed=seed).fit(points)

    costs = {seed: float(run(seed, how.first_iterations).summary.trainingCost) for seed in seeds}
    best = run(min(costs, key=costs.__getitem__), how.iterations)
    clusters: Rows = np.empty(count, np.int64)
    chosen = best.transform(points).select("position", "prediction").rdd.mapPartitions(_columns)
    for positions, numbers in chosen.collect():
        clusters[positions] = numbers
    return clusters, best.clusterCenters()


def _columns(rows: Iterator[Any]) -> Iterator[tuple[Rows, Rows]]:
    """Positions and clusters of one Spark task's rows, as two arrays."""
    found = np.array(list(rows), np.int64).reshape(-1, 2)
    yield found[:, 0], found[:, 1]


@functools.lru_cache(maxsize=1)
def _sent(spark: Any, source: Source) -> Any:
    """What tasks need to open the data set; sent once, so that processes which have it open know it again."""
    return spark.sparkContext.broadcast((os.getcwd(), source.open))


@functools.lru_cache(maxsize=1)
def _opened(sent: tuple[str, Callable[[], Dataset]]) -> Dataset:
    """The data set, opened once in each of Spark's Python processes, where relative paths mean what they do on the driver."""
    folder, open_ = sent
    if os.path.isdir(folder):
        os.chdir(folder)
    return open_()


def _watched(job: Callable[[], T], done: Any, progress: Progress) -> T:
    """What the job gives; tells meanwhile how many examples are done."""
    told = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job)
        while True:
            ended = wait([running], EVERY).done
            new = done.value - told
            if new:
                progress.advance(new)
                told += new
            if ended:
                return running.result()


@contextmanager
def _on_shared_volume(draft: Path, name: str) -> Iterator[None]:
    """For a task that writes the part `name`: takes away what a task that was lost has left of it, and tells what is wrong."""
    executor = f"Spark's executor on {socket.gethostname()}"
    if not draft.is_dir():
        raise DiskError(
            f"{executor} does not see {draft.parent}; give a folder on a volume that the driver and all executors have at "
            "the same path."
        )
    try:
        shutil.rmtree(draft / name, ignore_errors=True)
        yield
    except OSError as error:
        raise DiskError(
            f"{executor} can't write {name} to {draft.parent}: {error.strerror or error}. Free some space or give another "
            "folder."
        ) from error


def _spark(master: str | None) -> AbstractContextManager[Any]:
    return spark_session(master, "paceline shard", "data.engine=spark", f"data.engine.master is {master}")

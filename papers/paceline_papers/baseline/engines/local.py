"""local: MLlib in one process of Java with that many threads (`local[n]`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.mllib import MEMORY, check_spark, trained
from paceline_papers.baseline.split import Split


class Local(Engine):
    """Threads stand for executors; they share the memory of as many."""

    has_executors = has_storages = True

    def check(self) -> None:
        check_spark()

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        count = points[0].executors
        return trained(f"local[{count}]", MEMORY * (count + 1), split, points, logs / f"local-{count}.log")

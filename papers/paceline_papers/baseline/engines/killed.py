"""killed: as standalone, and one executor is killed in the middle of each training. Spark makes again what was on it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.engines.standalone import master
from paceline_papers.baseline.mllib import MEMORY, check_spark, trained
from paceline_papers.baseline.split import Split


class Killed(Engine):
    """Each model is trained without the kill first, to compare the two; the seconds are those of the training with it."""

    has_executors = has_storages = True

    def check(self) -> None:
        check_spark()

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        count = points[0].executors
        return trained(master(count), MEMORY, split, points, logs / f"killed-{count}.log", kill=True)

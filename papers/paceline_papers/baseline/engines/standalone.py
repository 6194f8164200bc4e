"""standalone: MLlib on a cluster that Spark makes on this machine (`local-cluster[n,1,MiB]`): n executors with a core, each
of them a process of Java."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.mllib import MEMORY, check_spark, trained
from paceline_papers.baseline.split import Split


class Standalone(Engine):
    """As the paper's worker nodes, though all of them share this machine's cores."""

    has_executors = has_storages = True

    def check(self) -> None:
        check_spark()

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        count = points[0].executors
        return trained(master(count), MEMORY, split, points, logs / f"standalone-{count}.log")


def master(count: int) -> str:
    """Of a cluster with that many executors."""
    return f"local-cluster[{count},1,{MEMORY}]"

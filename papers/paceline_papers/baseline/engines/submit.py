"""submit: MLlib by spark-submit on the cluster of --master: a Spark master, Kubernetes, or another that Spark knows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.mllib import check_spark, spark_submit, submitted
from paceline_papers.baseline.split import Split


class Submit(Engine):
    """The driver is on this machine. Executors have a core each, and the memory that Spark's settings say."""

    has_executors = has_storages = True

    def check(self) -> None:
        check_spark()
        if not (program := spark_submit()).is_file():
            raise ConfigError(
                f"There is no {program}. Set SPARK_HOME to Spark's folder, or leave it unset for pyspark's own."
            )

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        return submitted(self.cluster, split, points, logs / f"submit-{points[0].executors}.log")

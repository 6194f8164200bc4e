"""Who trains: a way to run models on a split, and what came out of each."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.core.registry import find
from paceline_papers.baseline.model import Model, model
from paceline_papers.baseline.split import Split

ENGINES = "paceline_papers.baseline.engines"
STORAGES = ("memory", "disk")
Found = dict[str, Any]
"""Of one training: confusion matrix, seconds of preparing, training and testing, CPU seconds of training, log loss or
None, how many weights are not 0 or None; of some engines the seconds that processes took to start and to end, of `submit`
how many executors were `there`, and of `killed` what a `Kill` says."""


@dataclass(frozen=True, slots=True)
class Point:
    """One training. `executors` and `storage` say nothing of engines without."""

    engine: str
    kind: str
    """The model's file."""
    variant: str
    encoding: str
    executors: int = 1
    storage: str = "memory"

    @property
    def model(self) -> Model:
        return model(self.kind)

    @property
    def setting(self) -> float:
        """Of the model."""
        return self.model.variants[self.variant]

    @property
    def name(self) -> str:
        """Of its row."""
        parts = [self.engine, self.variant, self.encoding]
        if (own := engine(self.engine)).has_executors:
            parts += [f"{self.executors} {own.executor}{'s' * (self.executors != 1)}"]
        if own.has_storages:
            parts += [self.storage]
        return ", ".join(parts)


def in_turns(points: Sequence[Point], seed: int) -> list[Point]:
    """The points of one session in the order of their training. Java gets faster as a session lasts, so memory and disk take
    turns at coming first, from one number of executors to the next and from seed to seed."""
    first = STORAGES[(points[0].executors + seed) % len(STORAGES)]
    return sorted(points, key=lambda point: point.storage != first)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark is, for the engine `submit`."""

    master: str = ""
    settings: Sequence[str] = ()
    """Spark's own, each as NAME=VALUE."""


NO_CLUSTER = Cluster()


class Engine(ABC):
    """One way; one file each."""

    cluster: Cluster = NO_CLUSTER
    """As the command says."""
    has_executors: ClassVar[bool] = False
    """Whether it trains with several processes, as many as --executors says."""
    executor: ClassVar[str] = "executor"
    """What one of them is called."""
    has_storages: ClassVar[bool] = False
    """Whether kinds of storage make a difference."""

    def check(self) -> None:  # noqa: B027 a library that everybody has
        """ConfigError where a library is missing that it needs."""

    def trains(self, model: Model) -> bool:
        """Whether it has such a model."""
        return True

    @abstractmethod
    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        """Trains points that have as many executors, one after the other; gives each when it is done. `logs`: a
        folder for what a library has to say."""


def engine(name: str, cluster: Cluster = NO_CLUSTER) -> Engine:
    """ConfigError: there is none of this name."""
    found = find(ENGINES, Engine, name)()
    found.cluster = cluster
    return found

"""An engine is where the work on all examples is done: this machine, or a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from paceline.core import registry
from paceline.core.settings.config import Options
from paceline.data.dataset import Dataset, Rows, Selection
from paceline.data.progress import Progress
from paceline.data.shard_arrays import Files
from paceline.sharder.clustering import Clustering

PACKAGE = "paceline.sharder.engines"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A task's examples. `open` can be sent to other processes and gives the same examples there."""

    dataset: Dataset
    open: Callable[[], Dataset]


class Engine(BaseModel, ABC):
    """Does what takes time with many examples; what it decides doesn't depend on which engine it is, but for the rounding
    of clusters. Fields are its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    forks: ClassVar[bool] = False
    """Whether it works in processes that are forked, too."""

    @abstractmethod
    def digest(self, source: Source, progress: Progress) -> str:
        """`Dataset.digest` of the examples. DataError where they hold NaN or infinity."""

    @abstractmethod
    def cluster(
        self, source: Source, train: Selection, how: Clustering, rng: np.random.Generator, progress: Progress
    ) -> Rows:
        """The cluster of each of the examples `train`, 0 to k - 1 (N,). Raises ConfigError if a package is not installed,
        DataError if there are fewer examples than clusters."""

    @abstractmethod
    def write(
        self, source: Source, draft: Path, parts: Mapping[str, Selection], progress: Progress
    ) -> dict[str, Files]:
        """As `paceline.data.shard_arrays.write_arrays`."""


def build_engine(options: Options) -> Engine:
    """The engine that the config names, its options checked."""
    return registry.build(PACKAGE, Engine, options.name, options.options, "data.engine")

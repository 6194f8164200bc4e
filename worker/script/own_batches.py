"""Replaces training data where a script draws its mini-batches itself: one example represents each of them."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline.core.settings.config import Config
from paceline.data.shards import Shard


class TrainingRows(Protocol):
    """What a script trains on."""

    @property
    def asks(self) -> dict[str, Any]:
        """What the run's settings must say for it: batch_size of each mini-batch that the script gets, `batch` and `budget`."""

    def dealt(self, config: Config) -> Any:
        """Shards (paceline/data/shards.py) whose features are the data set's row numbers; equal settings deal alike."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a folder of shards says about itself, as far as members of a run ask."""

    train_examples: int
    sizes: tuple[int, ...]
    epoch_lens: tuple[int, ...]
    fingerprint: str

    @property
    def shards(self) -> tuple[int, ...]:
        return self.sizes


class OwnBatches:
    """An epoch is a step, in which each worker draws one mini-batch; each makes as many as `__init__` was given."""

    shuffle = True
    fills = False

    def __init__(self, workers: int) -> None:
        self.asks: dict[str, Any] = {"batch_size": workers, "budget": "per_worker"}
        """What the run's settings must say for it."""
        each = (1,) * workers
        self.manifest = Facts(workers, each, each, "own batches")

    def dealt(self, config: Config) -> "OwnBatches":
        """There is nothing to deal."""
        return self

    def __len__(self) -> int:
        return len(self.manifest.sizes)

    def shard(self, number: int) -> Shard:
        rows = np.zeros(1, np.int64)
        return Shard(rows, rows, rows)

    def verify(self, which: int) -> None:
        """Nothing can be damaged."""

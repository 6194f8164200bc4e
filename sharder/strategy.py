"""A sharding strategy answers: which worker's shard does each training example go to?"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from paceline.core import registry
from paceline.data.dataset import Array, Rows

PACKAGE = "sharder.strategies"


class ShardingStrategy(BaseModel, ABC):
    """One way to deal examples to shards. Fields are its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def assign(self, labels: Array, features: Array, shards: int, rng: np.random.Generator) -> list[Rows]:
        """The row numbers that each shard gets: every row in at least one shard, and the same for the same generator.
        `labels` (N, ...) and `features` (N, ...) are the training examples."""


def build_strategy(name: str, options: dict[str, Any] | None = None) -> ShardingStrategy:
    """The strategy that the config names, its options checked."""
    return registry.build(PACKAGE, ShardingStrategy, name, options or {}, "data.strategy")

"""A sharding strategy answers: which workers' shards does each training example go to?"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from paceline.core import registry
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Options
from paceline.data.dataset import Rows, Selection
from paceline.sharder.clustering import Clustering, cluster
from paceline.sharder.dealing_order import Turns

PACKAGE = "paceline.sharder.strategies"
Cluster = Callable[[Selection, Clustering, np.random.Generator], Rows]
"""Finds the cluster of each example, 0 to k - 1 (N,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Who gets what: the row numbers of each shard, and where the strategy makes clusters, each row's cluster (N,) and the
    clusters that went to every shard."""

    shards: Sequence[Rows]
    clusters: Rows | None = None
    sparse: Sequence[int] = ()


class ShardingStrategy(BaseModel, ABC):
    """One way to deal examples to shards. Fields are its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    makes_clusters: ClassVar[bool] = False
    """Whether it finds clusters, by BLAS on all cores."""

    @abstractmethod
    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        """Every row of `train` in at least one shard, and the same for the same generator. `turns` deals rows to the
        shards, `cluster` finds clusters. DataError where the examples don't suit the strategy."""


class ByClasses(ShardingStrategy):
    """A strategy that looks at the examples' classes; another task of the same examples may say which these are."""

    by: str | None = Field(
        None, description="Task whose labels to deal by instead of the run's own, like cifar100_coarse for cifar100."
    )


def build_strategy(options: Options) -> ShardingStrategy:
    """The strategy that the config names, its options checked."""
    return registry.build(PACKAGE, ShardingStrategy, options.name, options.options, "data.strategy")


def deal(
    strategy: ShardingStrategy, train: Selection, weights: Sequence[float], seed: int, cluster: Cluster = cluster
) -> Assignment:
    """What the strategy decides, checked. `weights`: one for each shard. DataError where a shard would be empty,
    ConfigError where the strategy itself is wrong."""
    shards = len(weights)
    if len(train) < shards:
        raise DataError(
            f"{len(train)} training examples can't fill {shards} shards; set fewer workers, or give more data."
        )
    found = strategy.assign(train, Turns(weights), np.random.default_rng(seed), cluster)
    empty = [number for number, rows in enumerate(found.shards) if not len(rows)]
    if empty:
        raise DataError(
            f"Shard {empty[0]} would get none of the {len(train):,} training examples; set fewer workers, make "
            "data.weights more equal, or leave out data.strategy.literal, which gives the remaining examples to "
            "the first shards."
        )
    every = np.concatenate(found.shards)
    within = every[(every >= 0) & (every < len(train))]
    dealt = np.count_nonzero(np.bincount(within, minlength=len(train)))
    if len(found.shards) != shards or dealt < len(train) or len(within) < len(every):
        raise ConfigError(
            f"The strategy {type(strategy).__name__} dealt {dealt:,} of {len(train):,} examples to "
            f"{len(found.shards)} of {shards} shards; it must deal every row from 0 to {len(train) - 1:,}, and no "
            "other."
        )
    return found

"""random: shards that are like the whole on average ([Sharding], its baseline)."""

import numpy as np

from paceline.data.dataset import Array, Rows
from sharder.strategy import ShardingStrategy


class Random(ShardingStrategy):
    """Shuffles all examples, then deals them round robin: sizes differ by at most one."""

    def assign(self, labels: Array, features: Array, shards: int, rng: np.random.Generator) -> list[Rows]:
        order = rng.permutation(len(labels)).astype(np.int64)
        return [order[shard::shards] for shard in range(shards)]

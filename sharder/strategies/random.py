"""random: shards that are like the whole on average ([Sharding], its baseline)."""

import numpy as np

from paceline.data.dataset import Selection
from paceline.sharder.dealing_order import Turns
from paceline.sharder.strategy import Assignment, Cluster, ShardingStrategy


class Random(ShardingStrategy):
    """Shuffles all examples, then deals them round robin: sizes differ by at most one."""

    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        return Assignment(turns.deal(rng.permutation(len(train)).astype(np.int64)))

"""round_robin: in the examples' order in the file, like TensorFlow's `Dataset.shard`."""

import numpy as np

from paceline.data.dataset import Selection
from paceline.sharder.dealing_order import Turns
from paceline.sharder.strategy import Assignment, Cluster, ShardingStrategy


class RoundRobin(ShardingStrategy):
    """Example i goes to shard i mod n. Where classes alternate in the file (0, 1, 0, 1), shards lack classes."""

    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        return Assignment(turns.deal(np.arange(len(train), dtype=np.int64)))

"""distribution_aware: every shard sees every neighbourhood of the data, hidden ones too ([Sharding] III-B, Fig. 6)."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from paceline.core.errors import DataError
from paceline.data.dataset import Rows, Selection, is_class_label
from paceline.sharder.clustering import Clustering
from paceline.sharder.dealing_order import Turns, grouped
from paceline.sharder.strategy import Assignment, ByClasses, Cluster


class DistributionAware(ByClasses):
    """Finds clusters with PCA and KMeans, deals the examples of dense ones round robin, one cluster after the other, and
    gives those of sparse ones to every shard [Sharding]."""

    makes_clusters: ClassVar[bool] = True
    clusters: int | None = Field(None, ge=1, description="Clusters; default: twice the classes [Sharding].")
    components: int = Field(50, ge=1, description="Principal components that KMeans sees; at most the features.")
    iterations: int = Field(150, ge=1, description="Most iterations of KMeans [Sharding].")
    sparse_below: int | None = Field(
        None,
        ge=0,
        description="Clusters with fewer examples go to every shard; default: the number of shards, n, as the paper's "
        "text says; its pseudo-code means n + 1.",
    )
    standardise: bool = Field(True, description="Whether each feature is scaled to deviation 1 first; ours.")
    literal: bool = Field(
        False,
        description="As the paper writes it: the counter restarts for each cluster, nothing is scaled or shuffled.",
    )

    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        how = Clustering(
            self.clusters or _twice_the_classes(train),
            self.components,
            self.iterations,
            self.standardise and not self.literal,
        )
        clusters = cluster(train, how, rng)
        sizes = np.bincount(clusters)
        sparse = np.flatnonzero((sizes > 0) & (sizes < self._least(turns)))
        return Assignment(self.deal(clusters, turns, rng), clusters, sparse.tolist())

    def deal(self, clusters: Rows, turns: Turns, rng: np.random.Generator) -> list[Rows]:
        """The rows of each shard, given the cluster of each row."""
        least = self._least(turns)
        groups = grouped(clusters, None if self.literal else rng)
        nobody: Rows = np.empty(0, np.int64)
        dense = [group for group in groups if len(group) >= least]
        everyone = np.concatenate([nobody, *(group for group in groups if len(group) < least)])
        dealt = turns.deal_each([nobody, *dense], restart=self.literal)
        return [np.concatenate([rows, everyone]) for rows in dealt]

    def _least(self, turns: Turns) -> int:
        """Examples that a cluster needs to be dealt out."""
        return turns.shards if self.sparse_below is None else self.sparse_below


def _twice_the_classes(train: Selection) -> int:
    labels = train.labels
    if not is_class_label(labels):
        raise DataError(
            "The labels are no classes, so there is no number of clusters to take by itself; set data.strategy.clusters."
        )
    return 2 * len(np.unique(labels))

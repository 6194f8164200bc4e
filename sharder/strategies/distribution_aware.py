"""distribution_aware: every shard sees every neighbourhood of the data, hidden ones too ([Sharding] III-B, Fig. 6)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from paceline.core.errors import DataError
from paceline.data.dataset import Rows, Selection, is_class_label
from paceline.sharder.clustering import FITTED, STARTS, Clustering
from paceline.sharder.dealing_order import Turns, grouped
from paceline.sharder.strategy import Assignment, ByClasses, Cluster


class DistributionAware(ByClasses):
    """Finds clusters with PCA and KMeans, deals the examples of dense ones round robin, one cluster after the other, and
    gives those of sparse ones to every shard [Sharding]."""

    makes_clusters: ClassVar[bool] = True
    clusters: int | None = Field(None, ge=1, description="Clusters; default: twice the classes [Sharding].")
    components: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        50, description="Principal components that KMeans sees; at most the features; all: as many."
    )
    whiten: bool = Field(False, description="Whether each component is scaled to variance 1, so that rare ones count.")
    sample: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        FITTED, description="Examples that scale and components are fitted on, drawn at random; ours."
    )
    starts: int = Field(STARTS, ge=1, description="Starts of KMeans; the best of them goes on.")
    distance: Literal["euclidean", "cosine"] = Field(
        "euclidean", description="Between points; cosine: points count at length 1, so only their directions differ."
    )
    iterations: int = Field(150, ge=1, description="Most passes of KMeans over the data [Sharding].")
    sparse_below: int | None = Field(
        None,
        ge=0,
        description="Clusters with fewer examples go to every shard; default: the number of shards, n, as the paper's "
        "text says; n + 1 if literal, as its pseudo-code means.",
    )
    standardise: bool = Field(True, description="Whether each feature is scaled to deviation 1 first; ours.")
    literal: bool = Field(
        False,
        description="As the paper's Fig. 6: the counter restarts for each cluster, nothing is scaled or shuffled, PCA sees "
        "all examples, and each of KMeans' starts runs to its end.",
    )

    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        how = Clustering(
            self.clusters or _twice_the_classes(train),
            None if self.components == "all" else self.components,
            self.iterations,
            self.standardise and not self.literal,
            self.whiten,
            len(train) if self.literal or self.sample == "all" else self.sample,
            self.starts,
            self.distance == "cosine",
            self.literal,
        )
        clusters = cluster(train, how, rng)
        sizes = np.bincount(clusters)
        sparse = np.flatnonzero((sizes > 0) & (sizes < self.least(turns.shards)))
        return Assignment(self.deal(clusters, turns, rng), clusters, sparse.tolist())

    def deal(self, clusters: Rows, turns: Turns, rng: np.random.Generator) -> list[Rows]:
        """The rows of each shard, given the cluster of each row."""
        least = self.least(turns.shards)
        groups = grouped(clusters, None if self.literal else rng)
        nobody: Rows = np.empty(0, np.int64)
        dense = [group for group in groups if len(group) >= least]
        everyone = np.concatenate([nobody, *(group for group in groups if len(group) < least)])
        dealt = turns.deal_each([nobody, *dense], restart=self.literal)
        return [np.concatenate([rows, everyone]) for rows in dealt]

    def least(self, shards: int) -> int:
        """Examples that a cluster needs to be dealt out to this many shards."""
        return shards + self.literal if self.sparse_below is None else self.sparse_below


def _twice_the_classes(train: Selection) -> int:
    labels = train.labels
    if not is_class_label(labels):
        raise DataError(
            "The labels are not classes, so the number of clusters has no default; set data.strategy.clusters."
        )
    return 2 * len(np.unique(labels))

"""stratified: every shard has the same share of every class ([Sharding] III-A, Fig. 4)."""

import numpy as np
from pydantic import Field

from paceline.core.errors import DataError
from paceline.data.dataset import Rows, Selection, is_class_label
from paceline.sharder.dealing_order import Turns, grouped
from paceline.sharder.strategy import Assignment, ByClasses, Cluster


class Stratified(ByClasses):
    """Deals the examples of one class after the other round robin. The counter goes on across classes, so that totals
    and counts of each class differ by at most one [Sharding, but for the counter]."""

    literal: bool = Field(
        False, description="As the paper writes it: the counter restarts for each class, and nothing is shuffled."
    )
    shuffle: bool = Field(True, description="Whether examples are shuffled inside their class first.")

    def assign(self, train: Selection, turns: Turns, rng: np.random.Generator, cluster: Cluster) -> Assignment:
        classes = grouped(_classes(train), rng if self.shuffle and not self.literal else None)
        if len(classes) < 2:
            raise DataError(
                f"All {len(train):,} training examples have the same class, so they can't be stratified; set "
                "data.strategy to random or distribution_aware."
            )
        return Assignment(turns.deal_each(classes, restart=self.literal))


def _classes(train: Selection) -> Rows:
    labels = train.labels
    if not is_class_label(labels):
        raise DataError(
            f"The labels are {labels.dtype} with shape {labels.shape}, not one whole number for each example, so "
            "they can't be stratified; set data.strategy to random or distribution_aware."
        )
    return labels.astype(np.int64)

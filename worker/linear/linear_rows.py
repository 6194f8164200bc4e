"""A linear model's rows of a worker's shards: which ones train, which validate, and how long an epoch is."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.linear.model import Examples, Longs
from paceline.core.linear.objective import Objective
from paceline.core.settings.config import Config
from paceline.core.values import Vector
from paceline.data.costs import class_counts, costs_of
from paceline.data.linear_model import classes_of
from paceline.data.row_weights import check_some_count
from paceline.data.shards import Shards, stacked


class Rows(NamedTuple):
    """The rows of a seat's shards."""

    examples: Examples
    own: Vector | None
    """Their own weights (N,); None: all count alike."""
    train: Longs
    validation: Longs


class LinearData:
    """The rows of one run's shards. Each worker keeps a part of its shard for validation."""

    def __init__(self, config: Config, shards: Shards) -> None:
        self._config = config
        self._shards = shards

    def epoch_lens(self) -> list[int]:
        """Examples that one epoch takes at each place."""
        entries = self._shards.manifest.shards
        trained = self.sizes(range(len(entries)))
        if self._config.data.access == "all":
            return [-(-self.train_examples // self._config.workers)] * self._config.workers
        lens = [
            max(1, round(entry.epoch_len * count / entry.examples))
            for entry, count in zip(entries, trained, strict=True)
        ]
        return [sum(lens[place :: self._config.workers]) for place in range(self._config.workers)]

    @property
    def train_examples(self) -> int:
        """Examples of all shards that are trained on."""
        kept = np.concatenate([ids[keeps] for ids, keeps in zip(self._ids, self._keeps, strict=True)])
        return self._shards.manifest.train_examples - len(np.unique(kept))

    def sizes(self, mine: Sequence[int]) -> list[int]:
        """Examples to train on in each of these shards."""
        return [int(np.count_nonzero(~self._mask(shard))) for shard in mine]

    def rows(self, mine: Sequence[int], most: int | None = None) -> Rows:
        """The rows of these shards (of each the first ones, `most`)."""
        parts = [self._shards.shard(shard) for shard in mine]
        features = [part.features if most is None else part.features[:most] for part in parts]
        labels = np.concatenate([part.labels[:most] for part in parts])
        keeps = np.concatenate([self._mask(shard)[:most] for shard in mine])
        manifest = self._shards.manifest
        found = [part.weights[:most] for part in parts if part.weights is not None]
        own = np.concatenate(found) if found else None
        costs = costs_of(labels, self._config.svm.class_weights, manifest.classes or (), class_counts(manifest), own)
        whole = stacked(features) if len(features) > 1 else features[0]
        examples = Examples.of(whole, labels, classes=self.classes, costs=costs)
        return Rows(examples, own, np.flatnonzero(~keeps), np.flatnonzero(keeps))

    def check_weights(self, mine: Sequence[int]) -> None:
        """DataError where none of the rows that train, or of those that validate, counts."""
        found = [each for each in (self._shards.shard(shard).weights for shard in mine) if each is not None]
        if not found:
            return
        weights, keeps = np.concatenate(found), np.concatenate([self._mask(shard) for shard in mine])
        check_some_count(
            weights[~keeps], "training examples of one worker", "take fewer workers, or lower svm.validation"
        )
        kept = "examples that one worker keeps for validation"
        check_some_count(weights[keeps], kept, "keep more of them (svm.validation)")

    @cached_property
    def objective(self) -> Objective:
        """What is made small, of all training examples."""
        return self._config.svm.objective.over(self._shards.manifest.train_weight)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return classes_of(self._shards.manifest)

    def counts(self) -> Longs:
        """Training examples that have each feature, and behind these all of them where there is an intercept."""
        found = self._shards.feature_counts()
        return np.append(found, self._shards.manifest.train_examples) if self._config.svm.intercept else found

    @cached_property
    def _ids(self) -> list[Longs]:
        """Of every shard."""
        return [self._shards.ids(number) for number in range(len(self._shards))]

    @cached_property
    def _keeps(self) -> list[npt.NDArray[np.bool_]]:
        """Which examples of every shard are kept for validation, in whichever shards they are."""
        found = []
        for ids in self._ids:
            mixed = (ids.astype(np.uint64) + np.uint64(self._config.seed)) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
            found.append((mixed >> np.uint64(32)) < np.uint64(round(self._config.svm.held_out * 2**32)))
        return found

    def _mask(self, shard: int) -> npt.NDArray[np.bool_]:
        """Those of one shard, of which at least one trains."""
        keeps = self._keeps[shard].copy()
        keeps[:1] &= not keeps.all()
        return keeps

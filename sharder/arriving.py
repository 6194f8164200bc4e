"""Deals examples that arrive after the shards were made, by the neighbourhoods that were found then ([Sharding] VI)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Array, Rows
from paceline.data.manifest import read_manifest
from paceline.data.npz import mapped
from paceline.data.shard_writer import ARRIVED, NEIGHBOURHOODS
from paceline.data.whole_file import replacing
from paceline.sharder.clustering import Directions, Neighbourhoods
from paceline.sharder.strategies.distribution_aware import DistributionAware
from paceline.sharder.strategy import build_strategy

EVERY = -1
"""In place of a shard's number: the example goes to all of them."""
ROWS = 1 << 14
"""Examples that are taken at once."""


def stored(found: Neighbourhoods) -> dict[str, Array]:
    """What `Arriving` reads, as arrays by name."""
    directions = found.directions
    middle = {} if directions.middle is None else {"middle": directions.middle}
    return {"matrix": directions.matrix, "centres": found.centres, "unit": np.array(directions.unit), **middle}


class Arriving:
    """Deals examples round robin in each neighbourhood, first to the shards that have the fewest of it, so that no two shards'
    counts of it differ by more than one. A sparse neighbourhood's examples go to every shard until it has enough to be dealt.
    Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the shards. ConfigError where these have no neighbourhoods, or shards of different sizes."""
        manifest = read_manifest(folder)
        self._file = folder / ARRIVED
        strategy = build_strategy(manifest.recipe.strategy)
        if not isinstance(strategy, DistributionAware) or not (folder / NEIGHBOURHOODS).exists():
            raise ConfigError(
                f"The shards in {folder} have no {NEIGHBOURHOODS}: their strategy is {manifest.recipe.strategy.name}, or an "
                "older Paceline made them. Make shards with data.strategy=distribution_aware."
            )
        if len(set(manifest.recipe.weights)) > 1:
            raise ConfigError(
                f"The shards in {folder} have the weights {list(manifest.recipe.weights)}, but examples that arrive are dealt "
                "to equal shards only. Make shards without data.weights."
            )
        with np.load(folder / NEIGHBOURHOODS, allow_pickle=False) as kept:
            arrays = dict(kept)
        directions = Directions(arrays.get("middle"), arrays["matrix"], bool(arrays["unit"]))
        self._found = Neighbourhoods(directions, arrays["centres"])
        self._width = len(directions.matrix)
        self._least = strategy.least(len(manifest.shards))
        clusters = len(self._found.centres)
        self.counts: npt.NDArray[np.int64] = np.array(
            [[shard.clusters.get(str(number), 0) for shard in manifest.shards] for number in range(clusters)], np.int64
        )
        """Of each neighbourhood (rows) in each shard, those of the shards themselves included."""
        self._sparse = {*manifest.sparse, *np.flatnonzero(~self.counts.any(axis=1)).tolist()}
        """Those that were not dealt when the shards were made: they went to every shard, or had no examples."""
        if self._file.exists():
            self.counts = np.array(json.loads(self._file.read_text()), np.int64)

    def deal(self, features: Any) -> tuple[Rows, Rows]:
        """The shard of each example, or `EVERY`, and its neighbourhood. DataError where the examples have another shape."""
        width = int(np.prod(features.shape[1:]))
        if width != self._width:
            raise DataError(
                f"The examples have {width:,} features, and the shards were made of examples with {self._width:,}. Bring the "
                "examples into the same form."
            )
        clusters = self._found.of(features)
        shards = np.empty(len(clusters), np.int64)
        for number in np.unique(clusters):
            rows = np.flatnonzero(clusters == number)
            shards[rows] = self._turns(int(number), len(rows))
        return shards, clusters

    def _turns(self, number: int, examples: int) -> Rows:
        """Whose turn it is for each of the next examples of a neighbourhood."""
        counts = self.counts[number]
        is_sparse = number in self._sparse and counts.max() < self._least
        everyone = min(examples, int(self._least - counts.max())) if is_sparse else 0
        counts += everyone
        order = np.argsort(counts, kind="stable")
        turns = order[np.arange(examples - everyone) % len(order)]
        counts += np.bincount(turns, minlength=len(order))
        return np.concatenate([np.full(everyone, EVERY), turns])

    def save(self) -> None:
        """Writes what has been dealt next to the manifest, where the next one goes on."""
        with replacing(self._file, "what has been dealt") as draft:
            draft.write_text(json.dumps(self.counts.tolist()))


def assign(shards: Path, features: Path, out: Path) -> Mapping[str, int]:
    """Writes the shard of each example in the npy file `features` to `out`, -1 for all shards; returns how many each got.
    DiskError before anything is dealt where `out` can't be written."""
    arriving, given = Arriving(shards), mapped(features)
    with replacing(out, "the shards of the examples") as draft, draft.open("wb") as file:
        dealt = [arriving.deal(given[start : start + ROWS])[0] for start in range(0, len(given), ROWS)]
        found = np.concatenate([np.empty(0, np.int64), *dealt])
        np.save(file, found.astype(np.int32))
    arriving.save()
    names = {"every shard": EVERY} | {f"shard-{number}": number for number in range(arriving.counts.shape[1])}
    return {name: int((found == number).sum()) for name, number in names.items()}

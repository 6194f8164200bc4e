"""A small folder of shards with three classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from paceline.data.dataset import Array, Labelled, PartName, Selection
from paceline.data.manifest import Recipe
from paceline.data.shard_writer import Dealt, write_shards

ROWS, WIDTH = 300, 6
NAMES = ("cat", "dog", "eel")


def made(
    folder: Path,
    is_sparse: bool = False,
    parts: Sequence[PartName] = ("test",),
    least: float = 0.0,
    amounts: bool = False,
) -> tuple[Array, Array]:
    """Writes three shards that share example 7, and parts of 50 rows; returns features and class numbers of all."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(3, size=ROWS)
    features = (rng.random((ROWS, WIDTH)) * (rng.random((ROWS, WIDTH)) < 0.5) + least).astype(np.float32)
    features[:, 0] += numbers
    kept = csr_array(features) if is_sparse else features.reshape(ROWS, 2, 3)
    source = Labelled(kept, numbers + 0.5 if amounts else numbers)
    dealt = Dealt([Selection(source, np.array(rows)) for rows in (range(100), [7, *range(100, 150)], range(150, 200))])
    recipe = Recipe(task="made", strategy="random", shards=3, validation=0, test=0, seed=0, examples="a" * 64)
    held = {part: Selection(source, np.arange(200 + 50 * place, 250 + 50 * place)) for place, part in enumerate(parts)}
    write_shards(folder, "made", recipe, dealt, held, classes=None if amounts else NAMES)
    return features, numbers

"""What sharding costs compared with plain scikit-learn and a plain copy (target 14). Run: python -m benchmarks.sharding"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.kernels import Row, show
from paceline.core.settings.config import Options
from paceline.data.cifar import read_cifar10
from paceline.data.dataset import Labelled, Rows, Selection
from paceline.data.manifest import Recipe
from paceline.data.shard_writer import Dealt, write_shards
from paceline.sharder.strategy import build_strategy, deal

SHARDS = 12
"""Workers of [Sharding]."""
CLASSES = 10
Floats = npt.NDArray[Any]


class Reference(NamedTuple):
    """What plain scikit-learn gives: points to judge clusters in, how tight its own are, and its time (s)."""

    points: Floats
    inertia: float
    seconds: float


def sharding_rows(train: Selection, rounds: int, clusters: tuple[int, ...]) -> list[Row]:
    """Ratios of medians over `rounds` rounds, in which all take turns."""
    spent: dict[str, list[float]] = {}
    quality: dict[int, list[float]] = {k: [] for k in clusters}
    _deal(Selection(train.source, train.rows[:1000]), "distribution_aware", clusters=2)  # loads scikit-learn
    for _ in range(rounds):
        for name in ("random", "stratified"):
            _timed(spent, name, lambda name=name: _deal(train, name))  # type: ignore[misc]
        for k in clusters:
            found = _timed(spent, f"k={k}", lambda k=k: _deal(train, "distribution_aware", clusters=k))  # type: ignore[misc]
            theirs = reference(train, k)
            spent.setdefault(f"scikit-learn k={k}", []).append(theirs.seconds)
            quality[k].append(inertia(theirs.points, found.clusters) / theirs.inertia)
        _write(train, spent)
    middle = {name: median(seconds) for name, seconds in spent.items()}
    rows = [Row(f"  {name}, assignment (ms)", middle[name] * 1000, 5.0, None) for name in ("random", "stratified")]
    for k in clusters:
        ratio = middle[f"k={k}"] / middle[f"scikit-learn k={k}"]
        rows += [
            Row(f"14 distribution-aware / scikit-learn, k={k}", ratio, 0.30, 0.15),
            Row("  its inertia / scikit-learn's", median(quality[k]), 1.02, None),
            Row("  its time (s)", middle[f"k={k}"], None, None),
        ]
    return [*rows, Row("  writing shards / plain copy", middle["shards"] / middle["copy"], 1 / 0.6, None)]


def reference(train: Selection, k: int) -> Reference:
    """PCA and KMeans with ten starts, all on all rows, standardised, in float32."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    start = perf_counter()
    flat = train.features.reshape(len(train), -1).astype(np.float32)
    points = PCA(50, random_state=0).fit_transform(StandardScaler(copy=False).fit_transform(flat))
    fitted = KMeans(k, n_init=10, max_iter=150, random_state=0).fit(points)
    return Reference(points, float(fitted.inertia_), perf_counter() - start)


def inertia(points: Floats, clusters: Rows) -> float:
    """Sum of squared distances of the points (N, components) to the middle of their cluster."""
    return float(sum(((own - own.mean(0)) ** 2).sum() for own in (points[clusters == c] for c in np.unique(clusters))))


def made_images(rows: int) -> Selection:
    """Images (3, 32, 32) of 10 classes and 40 hidden strata: smooth patterns under noise, with CIFAR's falling spectrum."""
    rng = np.random.default_rng(0)
    strata = rng.integers(40, size=rows)
    fall = (1 + np.arange(200, dtype=np.float32)) ** -0.7
    middles = rng.standard_normal((40, 200), dtype=np.float32)
    patterns = rng.standard_normal((200, 3072), dtype=np.float32)
    images = np.empty((rows, 3, 32, 32), np.uint8)
    for part in np.array_split(np.arange(rows), max(1, rows // 5000)):
        latent = (middles[strata[part]] + rng.standard_normal((len(part), 200), dtype=np.float32)) * fall
        pixels = 128 + 25 * latent @ patterns + 10 * rng.standard_normal((len(part), 3072), dtype=np.float32)
        images[part] = pixels.clip(0, 255).astype(np.uint8).reshape(-1, 3, 32, 32)
    return Selection(Labelled(images, strata % CLASSES), np.arange(rows))


def _deal(train: Selection, name: str, **options: Any) -> Any:
    return deal(build_strategy(Options(name=name, **options)), train, (1.0,) * SHARDS, 0)


def _timed(spent: dict[str, list[float]], name: str, work: Callable[[], Any]) -> Any:
    start = perf_counter()
    found = work()
    spent.setdefault(name, []).append(perf_counter() - start)
    return found


def _write(train: Selection, spent: dict[str, list[float]]) -> None:
    """Shards of all examples, and one file of as many bytes copied; both safe on the disk at the end."""
    recipe = Recipe(
        task="made", strategy=Options(name="random"), shards=SHARDS, validation=0, test=0, seed=0, examples=""
    )
    shards = [train.pick(rows) for rows in _deal(train, "random").shards]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        whole, copy = Path(folder, "whole.npy"), Path(folder, "copy.npy")
        np.save(whole, train.features)
        _timed(spent, "copy", lambda: _copy(whole, copy))
        _timed(spent, "shards", lambda: write_shards(Path(folder, "shards"), "made", recipe, Dealt(shards), {}))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as stream:
        os.fsync(stream.fileno())


def main() -> None:
    """Prints the ratios of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="examples of the made data set")
    parser.add_argument("--data", help="CIFAR-10's binary version instead of made images")
    parser.add_argument("--clusters", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args()
    if told.data:
        images = read_cifar10(told.data).train
        train = Selection(images, np.arange(len(images)))
    else:
        train = made_images(told.rows)
    print(f"{len(train):,} x {train.source.features[0].size:,}")
    show(sharding_rows(train, told.rounds, tuple(told.clusters)))


if __name__ == "__main__":
    main()

"""Neighbourhoods of examples: PCA and KMeans by scikit-learn, on data of any size [Sharding III-B, Fig. 6]."""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Rows, Selection

Floats = npt.NDArray[np.float32]
FITTED = 5_000
"""Rows that scale and directions are fitted on; more move them by less than the noise of KMeans' starts."""
WHOLE = 2_000_000
"""Rows up to which KMeans takes all of them at once (400 MB at 50 components); above, it takes batches."""
CHUNK_BYTES = 16 << 20
"""Most that is taken from the data set at once, as float32."""
STARTS, FIRST_ITERATIONS = 3, 5
"""KMeans begins so many times; after a few iterations the best goes on alone."""
TOLERANCE = 1e-3
"""KMeans ends when its centres move by less on average, squared, beside the data's variance (ratio): its inertia is then
about a thousandth above where it would end."""
THREADS = 2
"""Two partial sums are the same whichever comes first; three are not, and equal seeds must give equal shards."""


class Clustering(NamedTuple):
    """How neighbourhoods are found."""

    clusters: int
    components: int
    iterations: int
    standardise: bool


def cluster(train: Selection, how: Clustering, rng: np.random.Generator) -> Rows:
    """The cluster of each example, 0 to k - 1 (N,). Reads the features in chunks; keeps N x components float32.
    ConfigError without scikit-learn, DataError where there are fewer examples than clusters."""
    if len(train) < how.clusters:
        raise DataError(
            f"{len(train)} training examples can't make {how.clusters} clusters; set data.strategy.clusters to less."
        )
    try:
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError("Distribution-aware shards need scikit-learn: pip install 'paceline[sharder]'.") from error
    seeds = [int(seed) for seed in rng.integers(2**32, size=STARTS + 1)]
    threads = min([THREADS, *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp")])
    quiet = np.errstate(over="ignore", invalid="ignore")  # `_finite` tells
    with threadpool_limits(threads, "openmp"), quiet, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # it says that fewer points differ than clusters were asked for
        return _kmeans(_summary(train, how, rng, seeds.pop()), how, seeds)


def _summary(train: Selection, how: Clustering, rng: np.random.Generator, seed: int) -> Floats:
    """The examples flattened, standardised and turned to their first principal components (N, components)."""
    from sklearn.decomposition import PCA

    rows = np.arange(len(train)) if len(train) <= FITTED else np.sort(rng.choice(len(train), FITTED, replace=False))
    sample = _flat(train, rows)
    middle = _finite(sample.mean(axis=0))
    scale = sample.std(axis=0) if how.standardise else np.ones_like(middle)
    scale[scale <= 1e-6 * np.abs(middle)] = 1  # constant but for rounding
    sample -= middle
    sample /= _finite(scale)
    components = min(how.components, *sample.shape)
    solver = "full" if min(sample.shape) <= 2 * components else "randomized"
    pca = PCA(components, svd_solver=solver, iterated_power=3, random_state=seed, copy=False).fit(sample)
    directions = np.ascontiguousarray((pca.components_ / scale).T)
    summary = np.empty((len(train), components), np.float32)
    for start, chunk in _chunks(train, len(middle)):
        chunk -= middle
        np.matmul(chunk, directions, out=summary[start : start + len(chunk)])
    return _finite(summary)


def _kmeans(points: Floats, how: Clustering, seeds: list[int]) -> Rows:
    """Several short starts of which the best goes on: Lloyd on all points, or on batches where they are too many."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(points) > WHOLE:
        fitted = MiniBatchKMeans(how.clusters, batch_size=10_000, n_init=STARTS, random_state=seeds[0]).fit(points)
        return fitted.labels_.astype(np.int64)  # type: ignore[no-any-return]

    def lloyd(begin: Any, iterations: int, seed: int) -> Any:
        kind = KMeans(
            how.clusters,
            init=begin,
            n_init=1,
            max_iter=iterations,
            tol=TOLERANCE * how.clusters,
            random_state=seed,
            copy_x=False,
        )
        return kind.fit(points)

    first = min(FIRST_ITERATIONS, how.iterations)
    best = min((lloyd("k-means++", first, seed) for seed in seeds), key=lambda fitted: fitted.inertia_)
    if best.n_iter_ == first < how.iterations:
        best = lloyd(best.cluster_centers_, how.iterations - first, seeds[0])
    return best.labels_.astype(np.int64)  # type: ignore[no-any-return]


def _finite(values: Floats) -> Floats:
    """The same values; DataError where float32 did not hold them."""
    if not np.isfinite(values).all():
        raise DataError(
            "Some features are too large to find clusters with float32; scale them, or remove the outliers."
        )
    return values


def _chunks(train: Selection, width: int) -> Iterator[tuple[int, Floats]]:
    """(first row, rows as float32), one part of the data after the other."""
    rows = max(1, CHUNK_BYTES // (4 * width))
    for start in range(0, len(train), rows):
        yield start, _flat(train, np.arange(start, min(start + rows, len(train))))


def _flat(train: Selection, rows: Rows) -> Floats:
    """Some examples, one row of float32 each."""
    found = train.pick(rows).features
    return found.reshape(len(found), -1).astype(np.float32)

"""Neighbourhoods of examples: PCA and KMeans by scikit-learn, on data of any size [Sharding III-B, Fig. 6]."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.data.dataset import Rows, Selection, is_sparse
from paceline.data.out_of_core import Growing, is_mapped
from paceline.data.progress import SILENT, Progress
from paceline.extras import needing

Floats = npt.NDArray[np.float32]
FITTED = 5_000
"""Rows that scale and directions are fitted on; more move them by less than the noise of KMeans' starts."""
SCATTERED = 250
"""Rows from all over the data set that are taken at once."""
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


def cluster(
    train: Selection,
    how: Clustering,
    rng: np.random.Generator,
    progress: Progress = SILENT,
    elsewhere: "Callable[[Directions, list[int]], Rows] | None" = None,
) -> Rows:
    """The cluster of each example, 0 to k - 1 (N,). Reads the features in chunks; keeps N x components float32, in a
    temporary file where they are too many. Sparse rows are not centred, so that they stay sparse.
    `elsewhere`: does all that reads more than a sample, given seeds for several starts of KMeans, in place of this process.
    ConfigError without scikit-learn, DataError where there are fewer examples than clusters."""
    if len(train) < how.clusters:
        raise DataError(
            f"{len(train)} training examples can't make {how.clusters} clusters; set data.strategy.clusters to less."
        )
    with needing("The strategy distribution_aware"):
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]
    seeds = [int(seed) for seed in rng.integers(2**32, size=STARTS + 1)]
    threads = min([THREADS, *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp")])
    quiet = np.errstate(over="ignore", invalid="ignore")  # `_finite` tells
    with threadpool_limits(threads, "openmp"), quiet, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # it says that fewer points differ than clusters were asked for
        directions = _directions(train, how, rng, seeds.pop())
        if elsewhere is not None:
            return elsewhere(directions, seeds)
        return _kmeans(summary(train, directions, progress), how, seeds)


class Directions(NamedTuple):
    """An example x is summed up as (x - middle) @ matrix; matrix (features, components)."""

    middle: Floats | None
    matrix: Floats


def _directions(train: Selection, how: Clustering, rng: np.random.Generator, seed: int) -> Directions:
    """The first principal components of the standardised features."""
    rows = np.arange(len(train)) if len(train) <= FITTED else np.sort(rng.choice(len(train), FITTED, replace=False))
    fit = _fit_sparse if is_sparse(train.source.features) else _fit
    return fit(train, rows, how, seed)


def _fit(train: Selection, rows: Rows, how: Clustering, seed: int) -> Directions:
    from sklearn.decomposition import PCA

    sample = np.concatenate([_some(train.pick(part)) for part in np.array_split(rows, -(-len(rows) // SCATTERED))])
    middle = _finite(sample.mean(axis=0))
    scale = sample.std(axis=0) if how.standardise else np.ones_like(middle)
    scale[scale <= 1e-6 * np.abs(middle)] = 1  # constant but for rounding
    sample -= middle
    sample /= _finite(scale)
    components = min(how.components, *sample.shape)
    solver = "full" if min(sample.shape) <= 2 * components else "randomized"
    pca = PCA(components, svd_solver=solver, iterated_power=3, random_state=seed, copy=False).fit(sample)
    return Directions(middle, np.ascontiguousarray((pca.components_ / scale).T))


def _fit_sparse(train: Selection, rows: Rows, how: Clustering, seed: int) -> Directions:
    """The same without centring, as for latent semantic analysis."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=False, with_std=how.standardise)
    sample = train.pick(rows).features.astype(np.float32)
    _finite(sample.data)
    sample = scaler.fit_transform(sample)
    found = TruncatedSVD(min(how.components, *sample.shape), random_state=seed).fit(sample).components_
    scale = scaler.scale_ if how.standardise else 1.0
    return Directions(None, np.ascontiguousarray((found / scale).T, np.float32))


def summary(train: Selection, directions: Directions, progress: Progress = SILENT) -> Floats:
    """All examples in few numbers (N, components)."""
    width, components = directions.matrix.shape
    points = Growing(np.float32, (components,))
    rows = max(1, CHUNK_BYTES // (4 * (components if directions.middle is None else width)))
    for start in range(0, len(train), rows):
        chunk = train.pick(np.arange(start, min(start + rows, len(train))))
        if directions.middle is None:
            points.append(chunk.features.astype(np.float32) @ directions.matrix)
        else:
            flat = _flat(chunk)
            flat -= directions.middle
            points.append(flat @ directions.matrix)
        train.source.release()
        progress.advance(len(chunk))
    return _finite(points.array())


def _kmeans(points: Floats, how: Clustering, seeds: list[int]) -> Rows:
    """Several short starts of which the best goes on: Lloyd on all points, or batches where they don't fit in memory."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if is_mapped(points):
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


def _some(examples: Selection) -> Floats:
    """`_flat`, and nothing stays resident: where a data set is mapped, each row brings up to a MiB of neighbours."""
    found = _flat(examples)
    examples.source.release()
    return found


def _flat(examples: Selection) -> Floats:
    """The examples, one row of float32 each."""
    found: Floats = examples.features.reshape(len(examples), -1).astype(np.float32)
    return found

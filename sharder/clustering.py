"""Neighbourhoods of examples: PCA and KMeans by scikit-learn, on data of any size [Sharding III-B, Fig. 6]."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.base.extras import needing
from paceline.core.errors import DataError
from paceline.data.dataset import Rows, Selection, is_sparse
from paceline.data.out_of_core import Growing, is_mapped
from paceline.data.progress import SILENT, Progress

Floats = npt.NDArray[np.float32]
FITTED = 5_000
"""Rows that scale and directions are fitted on; more move them by less than the noise of KMeans' starts."""
SCATTERED = 250
"""Rows from all over the data set that are taken at once."""
CHUNK_BYTES = 16 << 20
"""Most that is taken from the data set at once, as float32."""
SAMPLE_BYTES = 256 << 20
"""More than this is fitted on piece by piece, by scikit-learn's IncrementalPCA."""
STARTS, FIRST_ITERATIONS = 3, 5
"""KMeans starts this often; after a few rounds only the best one goes on."""
TOLERANCE = 1e-3
"""KMeans ends when its centres' mean squared move, divided by the data's variance, is below this: its inertia is then about a
thousandth above where it would end."""
THREADS = 2
"""Two partial sums are the same whichever comes first; three are not, and equal seeds must give equal shards."""


class Clustering(NamedTuple):
    """How neighbourhoods are found."""

    clusters: int
    components: int | None
    """None: as many as there are features."""
    iterations: int
    standardise: bool
    whiten: bool = False
    """Whether each component is scaled to variance 1."""
    sample: int | None = None
    """Rows that scale and components are fitted on; None: `FITTED`."""
    starts: int = STARTS
    cosine: bool = False
    """Whether only the directions of the points count, not their lengths."""
    thorough: bool = False
    """Whether all starts of KMeans run to their end, here by scikit-learn itself."""
    keep: "Callable[[Neighbourhoods], None] | None" = None
    """Gets what was found, for examples that arrive later."""

    @property
    def first_iterations(self) -> int:
        """Of each start of KMeans; the best one goes on."""
        return self.iterations if self.thorough else min(FIRST_ITERATIONS, self.iterations)


def cluster(
    train: Selection,
    how: Clustering,
    rng: np.random.Generator,
    progress: Progress = SILENT,
    elsewhere: "Callable[[Directions, list[int]], Rows] | None" = None,
) -> Rows:
    """The cluster of each example, 0 to k - 1 (N,). Reads the features block by block; keeps N x components float32, in a
    temporary file if they are too many. Sparse rows are not centred, so that they stay sparse.
    `elsewhere`: does all that reads more than a sample, given seeds for several starts of KMeans, instead of this process.
    Raises ConfigError without scikit-learn, DataError if there are fewer examples than clusters."""
    if len(train) < how.clusters:
        raise DataError(
            f"{len(train)} training examples can't make {how.clusters} clusters; set data.strategy.clusters lower."
        )
    with needing("The strategy distribution_aware"):
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]
    seeds = [int(seed) for seed in rng.integers(2**32, size=how.starts + 1)]
    threads = min([THREADS, *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp")])
    quiet = np.errstate(over="ignore", invalid="ignore")  # `_finite` tells
    with threadpool_limits(threads, "openmp"), quiet, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # it says that fewer points differ than clusters were asked for
        directions = _directions(train, how, rng, seeds.pop())
        if elsewhere is not None:
            return elsewhere(directions, seeds)
        clusters, centres = _kmeans(summary(train, directions, progress), how, seeds)
        hand_on(how, directions, centres)
        return clusters


class Directions(NamedTuple):
    """An example x is summed up as (x - middle) @ matrix, at length 1 if `unit`; matrix (features, components)."""

    middle: Floats | None
    matrix: Floats
    unit: bool = False

    def points(self, rows: Any) -> Floats:
        """What these rows are summed up as; overwrites dense ones."""
        if self.middle is not None:
            rows -= self.middle
        found: Floats = rows @ self.matrix
        if self.unit:
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return found


class Neighbourhoods(NamedTuple):
    """What finds the cluster of an example that came after the clusters were made."""

    directions: Directions
    centres: Floats
    """(clusters, components)."""

    def of(self, features: Any) -> Rows:
        """The cluster with the nearest centre to each of these examples (N,)."""
        from sklearn.metrics import pairwise_distances_argmin

        rows = features if is_sparse(features) else features.reshape(len(features), -1)
        points = self.directions.points(rows.astype(np.float32))
        return pairwise_distances_argmin(_finite(points), self.centres).astype(np.int64)  # type: ignore[no-any-return]


def hand_on(how: Clustering, directions: Directions, centres: Any) -> None:
    """Hands on what was found, where somebody keeps it."""
    if how.keep is not None:
        how.keep(Neighbourhoods(directions, np.asarray(centres, np.float32)))


def _directions(train: Selection, how: Clustering, rng: np.random.Generator, seed: int) -> Directions:
    """The first principal components of the standardised features."""
    most = FITTED if how.sample is None else how.sample
    rows = np.arange(len(train)) if len(train) <= most else np.sort(rng.choice(len(train), most, replace=False))
    if is_sparse(train.source.features):
        return _fit_sparse(train, rows, how, seed)
    width = math.prod(train.source.features.shape[1:])
    return (_fit_in_pieces if 4 * width * len(rows) > SAMPLE_BYTES else _fit)(train, rows, how, seed)


def _fit(train: Selection, rows: Rows, how: Clustering, seed: int) -> Directions:
    from sklearn.decomposition import PCA

    sample = np.concatenate([_some(train.pick(part)) for part in np.array_split(rows, -(-len(rows) // SCATTERED))])
    middle = _finite(sample.mean(axis=0))
    scale = sample.std(axis=0) if how.standardise else np.ones_like(middle)
    scale[scale <= 1e-6 * np.abs(middle)] = 1  # constant but for rounding
    sample -= middle
    sample /= _finite(scale)
    components = min(sample.shape if how.components is None else (how.components, *sample.shape))
    solver = "full" if min(sample.shape) <= 2 * components else "randomized"
    pca = PCA(components, svd_solver=solver, iterated_power=3, random_state=seed, copy=False).fit(sample)
    return _directed(middle, scale, pca, how)


def _fit_in_pieces(train: Selection, rows: Rows, how: Clustering, seed: int) -> Directions:
    """The same where the rows don't fit in memory; each piece has more rows than there are components."""
    from sklearn.decomposition import IncrementalPCA
    from sklearn.preprocessing import StandardScaler

    width = math.prod(train.source.features.shape[1:])
    components = min(width, len(rows)) if how.components is None else min(how.components, width, len(rows))
    pieces = np.array_split(rows, max(1, len(rows) // max(2 * components, CHUNK_BYTES // (4 * width))))
    scaler, pca = StandardScaler(with_std=how.standardise), IncrementalPCA(components)
    for piece in pieces:
        scaler.partial_fit(_finite(_some(train.pick(piece))))
    for piece in pieces:
        pca.partial_fit(scaler.transform(_some(train.pick(piece))))
    scale = scaler.scale_.astype(np.float32) if how.standardise else np.ones(width, np.float32)
    return _directed(_finite(scaler.mean_.astype(np.float32)), scale, pca, how)


def _directed(middle: Floats | None, scale: Any, fitted: Any, how: Clustering) -> Directions:
    """What scikit-learn has fitted to the scaled features, as one step."""
    found = fitted.components_ / scale
    if how.whiten:
        found = found / np.sqrt(np.maximum(fitted.explained_variance_, np.finfo(np.float32).eps))[:, None]
    return Directions(middle, np.ascontiguousarray(found.T, np.float32), how.cosine)


def _fit_sparse(train: Selection, rows: Rows, how: Clustering, seed: int) -> Directions:
    """The same without centring, as for latent semantic analysis."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=False, with_std=how.standardise)
    sample = train.pick(rows).features.astype(np.float32)
    _finite(sample.data)
    sample = scaler.fit_transform(sample)
    components = min(sample.shape if how.components is None else (how.components, *sample.shape))
    found = TruncatedSVD(components, random_state=seed).fit(sample)
    return _directed(None, scaler.scale_ if how.standardise else 1.0, found, how)


def summary(train: Selection, directions: Directions, progress: Progress = SILENT) -> Floats:
    """All examples in few numbers (N, components)."""
    width, components = directions.matrix.shape
    points = Growing(np.float32, (components,))
    rows = max(1, CHUNK_BYTES // (4 * (components if directions.middle is None else width)))
    for start in range(0, len(train), rows):
        chunk = train.pick(np.arange(start, min(start + rows, len(train))))
        points.append(
            directions.points(chunk.features.astype(np.float32) if directions.middle is None else _flat(chunk))
        )
        train.source.release()
        progress.advance(len(chunk))
    return _finite(points.array())


def _kmeans(points: Floats, how: Clustering, seeds: list[int]) -> tuple[Rows, Floats]:
    """The cluster of each point, and the centres. Several short starts of which the best goes on: Lloyd on all points, or
    batches where they don't fit in memory."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if is_mapped(points) or how.thorough:
        kind: Any = partial(MiniBatchKMeans, batch_size=10_000) if is_mapped(points) else KMeans
        most = how.iterations if how.thorough else 100
        fitted = kind(how.clusters, n_init=how.starts, max_iter=most, random_state=seeds[0]).fit(points)
        return fitted.labels_.astype(np.int64), fitted.cluster_centers_

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

    first = how.first_iterations
    best = min((lloyd("k-means++", first, seed) for seed in seeds), key=lambda fitted: fitted.inertia_)
    if best.n_iter_ == first < how.iterations:
        best = lloyd(best.cluster_centers_, how.iterations - first, seeds[0])
    return best.labels_.astype(np.int64), best.cluster_centers_


def _finite(values: Floats) -> Floats:
    """The same values; DataError where float32 did not hold them."""
    if not np.isfinite(values).all():
        raise DataError(
            "Some features are no finite numbers, or too large for clustering in float32. Fill in what is missing; scale the "
            "others, or remove the outliers."
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

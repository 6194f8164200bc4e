"""local: this machine does it all, with numpy and scikit-learn, on data sets of any size."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np

from paceline.data.dataset import Rows, Selection
from paceline.data.progress import Progress
from paceline.data.shard_arrays import Files, write_arrays
from paceline.sharder.clustering import Clustering, cluster
from paceline.sharder.engine import Engine, Source

THREADS = 2


class Local(Engine):
    """Reads the examples piece by piece, three times at most: to check and hash them, to find clusters, and to write."""

    forks: ClassVar[bool] = True

    def digest(self, source: Source, progress: Progress) -> str:
        dataset = source.dataset
        pieces = dataset.pieces()

        def digests(pool: ThreadPoolExecutor) -> Iterator[bytes]:
            for piece, digest in zip(pieces, pool.map(dataset.piece_digest, pieces), strict=True):
                progress.advance(piece.stop - piece.start)
                yield digest

        with ThreadPoolExecutor(THREADS) as pool:
            return dataset.digest(digests(pool))

    def cluster(
        self, source: Source, train: Selection, how: Clustering, rng: np.random.Generator, progress: Progress
    ) -> Rows:
        return cluster(train, how, rng, progress)

    def write(
        self, source: Source, draft: Path, parts: Mapping[str, Selection], progress: Progress
    ) -> dict[str, Files]:
        return write_arrays(draft, parts, progress)

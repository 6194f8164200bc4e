"""Runs of a recipe at the same time, one on each core, each in its own process."""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.base.private import make_private
from paceline.launch.this_machine.processors import cores
from paceline_papers.reproduce.kept import RunKey
from paceline_papers.reproduce.recipe import Around, Figures, Train

Finished = tuple[RunKey, Figures, float]
"""A run, what it gave, and the seconds that it took."""


def timed(run: Train, around: Around, row: str, seed: int) -> Finished:
    """Trains a row with a seed."""
    start = time.perf_counter()
    figures = run(around, row, seed)
    return (row, seed), figures, time.perf_counter() - start


def train_side_by_side(run: Train, keys: Sequence[RunKey], folder: Path) -> Iterator[Finished]:
    """Trains all of them, and gives each as soon as it is finished. `folder`: each process makes its own in it. Closing the
    iterator, or an interruption, ends the processes; one that is killed raises joblib's TerminatedWorkerError."""
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=min(cores(), len(keys)), inner_max_num_threads=1):
        every = (delayed(_train)(run, folder, row, seed) for row, seed in keys)
        yield from Parallel(return_as="generator_unordered")(every)


def _train(run: Train, folder: Path, row: str, seed: int) -> Finished:
    """In one of the processes. Runs share shards only with those of the same process."""
    multiprocessing.set_start_method("spawn", force=True)  # the processes that a run starts don't know joblib's
    mine = folder / str(os.getpid())
    make_private(mine)
    return timed(run, Around(mine), row, seed)

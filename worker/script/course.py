"""Where a script is in its mini-batches: it begins at the worker's clock, and goes on until the run is over."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.sampler import Sampler
from paceline.worker.script.training_data import Brought, shape_of


class Run(Protocol):
    """What loaders ask of the script's run (worker/script/script_run.py)."""

    rank: int
    seed: int
    is_over: bool
    accumulate: int
    """Mini-batches of the script for each step."""
    steps_per_epoch: int
    """Steps of a pass; known after the join."""

    @property
    def can_join(self) -> bool:
        """Whether the script has said what it trains, and how long."""

    def so_far(self) -> Config:
        """The run's settings; before the join with what the script has said so far."""

    def bring(self, data: Brought) -> None:
        """What is trained on."""

    def join(self) -> None:
        """Joins the run, if that has not been done."""

    def positions(self) -> Iterator[int]:
        """Those of this epoch's mini-batches, from the next one on, from 1; they may be taken ahead."""

    def drew(self, seconds: float) -> None:
        """The script gets its next mini-batch, or the next part of one, which took this long to load (seconds)."""

    def drew_all(self) -> None:
        """It has had all of its epoch."""

    def rows(self, position: int) -> Rows:
        """The data set's rows that make this worker's mini-batch there."""

    def say(self, event: str, **facts: Any) -> None:
        """To the worker's log."""


class Part(NamedTuple):
    """What the script gets at once: a mini-batch, or with `accumulate` a part of one."""

    rows: Rows
    position: int
    """Of the mini-batch, from 1."""


class Course:
    """The mini-batches of this worker. Not thread-safe."""

    def __init__(self, run: Run, brought: Brought) -> None:
        self.run = run
        self.brought = brought

    def begin(self) -> bool:
        """Joins the run; False where the script only has a look at the data, before it has said what it trains."""
        if not self.run.can_join:
            return False
        self.run.join()
        return True

    def hands_out(self, seconds: float = 0.0) -> bool:
        """The script is about to get its next part, which took this long to load (seconds); False where the run is over."""
        if not self.run.is_over:
            self.run.drew(seconds)
        return not self.run.is_over

    def parts(self, *, one_pass: bool = False) -> Iterator[Part]:
        """From the next step on to the end of the epoch, or of the run; a loader that reads ahead may take them early.
        `one_pass`: at most to the end of the pass, in the last epoch, too."""
        first = None
        for position in self.run.positions():
            begun = (position - 1) // self.run.steps_per_epoch
            first = begun if first is None else first
            if one_pass and begun > first:
                return
            yield from cut(self.run.rows(position), position, self.run.accumulate)

    def look(self) -> Iterator[Part]:
        """What would come first if this worker's place were its rank; nothing is counted."""
        config = self.run.so_far()
        data = self.brought.dealt(config)
        mine = data.shard(self.run.rank % len(data)).features
        steps = -(-len(mine) // config.worker_batch)
        sampler = Sampler([len(mine)], config.worker_batch, steps, config.seed, "look", shuffle=data.shuffle)
        for position in range(1, steps + 1):
            yield from cut(mine[sampler.indices(position)], position, self.run.accumulate)

    @property
    def parts_per_epoch(self) -> int:
        """How many parts a pass has, the same for all workers."""
        config = self.run.so_far()
        return shape_of(config, self.brought.dealt(config).manifest)[1] * self.run.accumulate


def cut(rows: Rows, position: int, parts: int) -> Iterator[Part]:
    """Cuts the mini-batch into `parts` nearly equal parts, or fewer, since none is empty; yields nothing if it is empty."""
    parts = min(parts, len(rows))
    for some in np.array_split(rows, parts) if parts else ():
        yield Part(some, position)

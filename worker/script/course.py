"""Where a script is in its mini-batches: it begins at the worker's clock, goes on until the run is over, and steps with each
mini-batch of an epoch or leaves it out."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from paceline.core.chief.budget import OWN_BATCHES
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.sampler import Sampler
from paceline.data.shards import Shard
from paceline.worker.script.training_data import Brought, shape_of


class Run(Protocol):
    """What loaders ask of the script's run (worker/script/script_run.py)."""

    rank: int
    workers: int
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

    def drew(self, position: int, seconds: float) -> None:
        """The script gets the mini-batch at this position, or a part of it, which took this long to load (seconds)."""

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
        self._ahead: deque[int] = deque()
        """Positions of the parts that a loader has taken, and the script has not."""

    def begin(self) -> bool:
        """Joins the run; False where the script only has a look at the data, before it has said what it trains."""
        if not self.run.can_join:
            return False
        self.run.join()
        return True

    def hands_out(self, seconds: float = 0.0) -> bool:
        """The script is about to get its next part, which took this long to load (seconds); False where the run is over."""
        if not self.run.is_over:
            self.run.drew(self._ahead.popleft(), seconds)
        return not self.run.is_over

    def parts(self, *, one_pass: bool = False) -> Iterator[Part]:
        """From the next step on to the end of the epoch, or of the run; a loader that reads ahead may take them early.
        `one_pass`: at most to the end of the pass, in the last epoch, too."""
        first = None
        self._ahead.clear()
        for position in self.run.positions():
            begun = (position - 1) // self.run.steps_per_epoch
            first = begun if first is None else first
            if one_pass and begun > first:
                return
            for part in cut(self.brought.rows(self.run.rows(position), begun), position, self.run.accumulate):
                self._ahead.append(position)
                yield part

    def look(self) -> Iterator[Part]:
        """What would come first if this worker's place were its rank; nothing is counted."""
        config = self.run.so_far()
        data = self.brought.dealt(config)
        mine = data.shard(self.run.rank % len(data)).features
        steps = -(-len(mine) // config.worker_batch)
        sampler = Sampler([len(mine)], config.worker_batch, steps, config.seed, "look", shuffle=data.shuffle)
        for position in range(1, steps + 1):
            rows = self.brought.rows(mine[sampler.indices(position)], 0)
            yield from cut(rows, position, self.run.accumulate)

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


class PresentEpoch:
    """The mini-batches of a script's present pass over its loader, by their positions. Not thread-safe."""

    def __init__(self, accumulate: int = 1) -> None:
        """`accumulate`: mini-batches of the script for each step."""
        self._accumulate = accumulate
        self.end = 0
        """Position of its last mini-batch; 0: it has not begun."""
        self._drawn = self._made = 0
        """Parts of mini-batches, and steps."""
        self._has_drawn_all = False

    def begin(self, position: int, steps: int) -> None:
        """Begins an epoch after this position, of `steps` mini-batches; that of a worker that has just joined ends where the
        others' does."""
        self.end = position + steps - (0 if self.end else position % steps)
        self._drawn, self._made, self._has_drawn_all = 0, 0, False

    def drew(self) -> None:
        """The script gets its next mini-batch, or the next part of one."""
        self._drawn += 1

    def drew_all(self) -> None:
        """The script has had all mini-batches of the epoch."""
        self._has_drawn_all = True

    def step(self) -> None:
        """Counts a step. ConfigError where the mini-batches for it have not come."""
        self._made += 1
        if self._accumulate > 1 and self._drawn and (self._made - 1) * self._accumulate >= self._drawn:
            raise ConfigError(
                f"optimizer.step() came {self._made} times for {self._drawn} mini-batches, but "
                f"accumulate={self._accumulate} in paceline.wrap. Call it once for each {self.mini_batches}."
            )

    def missing(self, skipped: int) -> int:
        """The steps missing at the end of an epoch whose mini-batches were all drawn. `skipped`: those that were not stepped
        with. Raises ConfigError if these are most."""
        if not self._has_drawn_all or not skipped:
            return 0
        if self._made <= skipped:
            raise ConfigError(
                f"optimizer.step() was called {self._made} times in an epoch of {self._made + skipped} steps. Call it once "
                f"for each {self.mini_batches}. If you add up the gradients of several mini-batches, say how "
                "many: paceline.wrap(optimizer, model, accumulate=4)."
            )
        return skipped

    @property
    def mini_batches(self) -> str:
        """Those of a step, in words."""
        return "mini-batch" if self._accumulate == 1 else f"{self._accumulate} mini-batches"


class BatchesDone:
    """Counts this worker's mini-batches, for each of which a script may step several times. Not thread-safe."""

    def __init__(self, done: int = 0) -> None:
        """`done`: those of earlier starts."""
        self.done = done
        """Those after which a process that is started again begins."""
        self.drawn = 0
        """Position of the newest that the script has; 0: nobody knows, and each step is taken for one."""
        self.skipped = 0
        """Those of this epoch that were drawn and not stepped with."""
        self._steps = 0
        self._usual = 1
        """Steps with the newest one, and with the one before."""

    def draw(self, position: int) -> None:
        """The script gets the mini-batch at this position, or another part of it: the ones before are done."""
        if position == self.drawn:
            return
        if self._steps:
            self._usual = self._steps
        elif self.drawn:
            self.skipped += 1
        self._steps = 0
        self.done, self.drawn = position - 1, position

    def end(self) -> None:
        """The script's epoch has ended, so that its newest mini-batch is done."""
        if self.drawn:
            self.skipped += not self._steps
            self.done = self.drawn

    def begin(self) -> None:
        """The script's next epoch begins."""
        self.skipped = self.drawn = 0

    def step(self) -> None:
        """A step with the newest one, which is done when it has had as many as the one before."""
        self._steps += 1
        if not self.drawn:
            self.done += 1
        elif self._steps >= self._usual:
            self.done = self.drawn


def beyond_own(name: str, made: int, own: int, policy: str) -> str:
    """What to say of an error in the steps that a fast worker makes beyond its own."""
    return (
        f"paceline: {name} has made {made:,} steps, and its own were {own:,}: by {policy} a fast worker takes over what slow "
        "ones have not done. With --set budget=per_worker it ends after its own."
    )


class TrainingRows(Protocol):
    """What a script trains on."""

    @property
    def asks(self) -> dict[str, Any]:
        """What the run's settings must say for it: batch_size of each mini-batch that the script gets, `batch` and `budget`."""

    def dealt(self, config: Config) -> Any:
        """Shards (paceline/data/shards.py) whose features are the data set's row numbers; equal settings deal alike."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a folder of shards says about itself, as far as members of a run ask."""

    train_examples: int
    sizes: tuple[int, ...]
    epoch_lens: tuple[int, ...]
    fingerprint: str
    columns: None = None
    """A script's own examples have none that are named."""

    @property
    def shards(self) -> tuple[int, ...]:
        return self.sizes


class OwnBatches:
    """An epoch is a step, in which each worker draws one mini-batch; each makes as many as `__init__` was given."""

    shuffle = True
    fills = False
    is_common = False

    def __init__(self, workers: int) -> None:
        self.asks: dict[str, Any] = {"batch_size": workers, "budget": "per_worker"}
        """What the run's settings must say for it."""
        each = (1,) * workers
        self.manifest = Facts(workers, each, each, OWN_BATCHES)

    def dealt(self, config: Config) -> "OwnBatches":
        """There is nothing to deal."""
        return self

    def __len__(self) -> int:
        return len(self.manifest.sizes)

    def shard(self, number: int) -> Shard:
        rows = np.zeros(1, np.int64)
        return Shard(rows, rows, rows)

    def verify(self, which: int) -> None:
        """Nothing can be damaged."""

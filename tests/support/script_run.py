"""A script's run without servers: as many workers as a test wants, each with a place, a clock and the real sampler."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.sampler import Sampler
from paceline.data.shards import take
from paceline.sharder.dealing import rows_of_shards
from paceline.worker.script.loaders import loader
from paceline.worker.script.samplers import sampler
from paceline.worker.script.training_data import Brought, shape_of
from tests.support.in_process import Said

__all__ = ["FakeRun", "rows_of_shards"]


class FakeRun:
    """One worker. `done`: its clock at the join; each mini-batch that is taken is a step that is done."""

    is_alone = False

    def __init__(self, rank: int = 0, *, accumulate: int = 1, done: int = 0, epochs: int = 1, **settings: Any) -> None:
        self._given = {"workers": 1} | settings
        self.rank = rank
        self.workers: int = self._given["workers"]
        self.seed = 0
        self.accumulate = accumulate
        self.position = done
        self.is_over = False
        self.can_join = True
        self.say = Said()
        self.steps_per_epoch = 0
        self._epochs = epochs
        self.epoch = -1
        self._data: Brought | None = None
        self._sampler: Sampler | None = None
        self._shards: list[Any] = []

    def so_far(self) -> Config:
        asks = {} if self._data is None else dict(self._data.asks)
        if "batch_size" in asks:
            asks["batch_size"] *= self.accumulate
        return Config(**(asks | self._given))

    def bring(self, data: Brought) -> None:
        if self._data is not None:
            raise ConfigError("There is a second one.")
        self._data = data

    def join(self) -> None:
        if self._sampler is not None:
            return
        assert self._data is not None
        config = self.so_far()
        data = self._data.dealt(config)
        lens, self.steps_per_epoch = shape_of(config, data.manifest)
        place, n = self.rank, config.workers
        mine = list(range(len(data)))[place::n] if config.data.access == "shard" else list(range(len(data)))
        self._sampler = Sampler(
            [data.manifest.sizes[number] for number in mine],
            config.worker_batch,
            self.steps_per_epoch,
            config.seed,
            f"worker-{place}",
            lens[place],
            shuffle=data.shuffle,
            fills=data.fills,
        )
        self._shards = [data.shard(number) for number in mine]

    def rows(self, position: int) -> Rows:
        assert self._sampler is not None
        found: Rows = take(self._shards, *self._sampler.batch(position))[0]
        return found

    def positions(self) -> Iterator[int]:
        self.join()
        position = self.position
        while not self.is_over:
            position += 1
            if len(self.rows(position)):
                yield position
            if position % self.steps_per_epoch == 0 and self.epoch < self._epochs - 1:
                return

    def drew(self, position: int = 0, seconds: float = 0.0) -> None:
        """Steps are made for all."""

    drew_all = drew

    def step(self) -> None:
        """As the wrapped optimizer's."""
        self.position += 1
        while not len(self.rows(self.position)):
            self.position += 1
        self.is_over = self.position >= self._epochs * self.steps_per_epoch or self._is_last()

    def _is_last(self) -> bool:
        """Whether what is left of the last pass has no rows."""
        rest = range(self.position + 1, self._epochs * self.steps_per_epoch + 1)
        return not any(len(self.rows(position)) for position in rest)

    def loader(self, dataset: Any, batch_size: Any = 8, **options: Any) -> Any:
        return loader(self, rows_of_shards, dataset, batch_size, **options)

    def sampler(self, dataset: Any, batch_size: int | None = None, **options: Any) -> Any:
        return sampler(self, rows_of_shards, dataset, batch_size, **options)

    def train(self, batches: Any, most: int | None = None) -> list[Any]:
        """What a script's loop over all epochs gets, a step for each `accumulate` mini-batches: a list for each."""
        found: list[Any] = []
        self.join()
        while not self.is_over:
            self.epoch = min(self._epochs - 1, max(self.epoch + 1, self.position // self.steps_per_epoch))
            for number, batch in enumerate(batches, 1):
                found.append(np.asarray(batch).tolist() if not isinstance(batch, (dict, list, tuple)) else batch)
                if number % self.accumulate == 0:
                    self.step()
                if len(found) == most:
                    return found
        return found

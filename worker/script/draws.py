"""What a script draws at random: torch, numpy and `random` have one seed at each step, and a sampler draws alike in all
processes."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from itertools import islice
from operator import index
from typing import Any

import numpy as np
import torch

from paceline.core.errors import ConfigError, TryAgain
from paceline.data.dataset import Rows


def seed_all(seed: int, of_torch: Callable[[int], object] = torch.manual_seed) -> None:
    """Seeds the generators that a script draws from unless it makes one; `seed`: 64 bits at most; `of_torch`: seeds torch's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    of_torch(seed)


@contextmanager
def same_draws(seed: int) -> Iterator[None]:
    """Inside the block, rows draw the same random numbers in all processes; afterwards the generators are as before."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed_all(seed, torch.default_generator.manual_seed)  # not those of GPUs, which rows do not draw from
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


class SampledRows:
    """The numbers of the rows that a script's sampler draws, epoch by epoch: by the run's seed and the epoch, so alike in all
    processes."""

    def __init__(self, sampler: Any, seed: int) -> None:
        """`seed`: of the run, as far as it is known. ConfigError where the sampler does not say how many it draws."""
        self.kind = type(sampler).__name__
        self._sampler = sampler
        self.seed = seed
        self._next = 0
        self._drawn: dict[int, Rows] = {}
        """Of the newest epoch and the one before, where the script may be while its loader reads ahead."""
        try:
            self._length = len(sampler)
        except TypeError:
            raise ConfigError(
                f"The length of an epoch is unknown, because the {self.kind} has no len(). Give it a __len__: the number of "
                "rows that it draws in an epoch, for all workers together."
            ) from None
        if self._length < 1:
            raise ConfigError(f"The {self.kind} draws {self._length} rows in an epoch; expected 1 or more.")

    def __len__(self) -> int:
        return self._length

    @cached_property
    def mark(self) -> bytes:
        """SHA-256 of those of the first epoch."""
        return sha256(self.of(0).data).digest()

    def of(self, epoch: int) -> Rows:
        """Those of this epoch, from 0. ConfigError where they are no numbers, or not as many as it says; TryAgain where it is
        long over."""
        # what only counts its own passes draws the ones before again in a process that has started in the middle
        while epoch not in self._drawn:
            drawn = epoch if hasattr(self._sampler, "set_epoch") else self._next
            if drawn > epoch:
                raise TryAgain(
                    f"The {self.kind} can't draw the rows of epoch {epoch} again after those of epoch {drawn - 1}, so this "
                    "process ends; the next one begins there."
                )
            self._drawn = {one: rows for one, rows in self._drawn.items() if one == drawn - 1}
            self._drawn[drawn] = self._draw(drawn)
            self._next = drawn + 1
        return self._drawn[epoch]

    def _draw(self, epoch: int) -> Rows:
        seed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0])
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        if isinstance(own := getattr(self._sampler, "generator", None), torch.Generator):
            own.manual_seed(seed)

        with same_draws(seed):
            try:
                rows = np.fromiter(map(index, islice(self._sampler, self._length + 1)), np.int64)
            except TypeError as error:
                raise ConfigError(f"The {self.kind} has to draw numbers of rows: {error}.") from error
        if len(rows) != self._length:
            seen = "more" if len(rows) > self._length else f"only {len(rows):,}"
            raise ConfigError(f"The {self.kind} draws {seen} rows in an epoch, but its len() is {self._length:,}.")
        return rows

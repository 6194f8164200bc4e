"""What a script draws at random: torch, numpy and Python's `random` have one seed at each step."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seeds the generators that a script draws from unless it makes one; `seed`: 64 bits at most."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def same_draws(seed: int) -> Iterator[None]:
    """Inside the block, rows draw the same random numbers in all processes; afterwards the generators are as before."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # not those of GPUs, which rows do not draw from
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


class StepDraws:
    """Seeds each step of a worker, by the run's seed, the worker and the step, and by the seed that the script itself has given
    torch."""

    def __init__(self, seed: int) -> None:
        """`seed`: of the run, which all processes have begun with. Called when the script comes to its loop."""
        own = torch.initial_seed()
        self._own = None if own == seed else own % 2**64

    def seed(self, step: int) -> None:
        """Seeds all generators for a step. `step`: drawn from the run's seed, the worker and the step (32 bits)."""
        if self._own is not None:
            step = int(np.random.SeedSequence([step, self._own]).generate_state(1)[0])
        seed_all(step)

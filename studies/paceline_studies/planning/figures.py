"""What a worker and a server take for a mini-batch and a push: measured by a probe, or given."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.core.policies.policy import push_batches
from paceline.core.settings.config import Config

EMPTY_PUSH = 150e-6
"""CPU time that a server takes for a push without values (seconds)."""


class Step(NamedTuple):
    """A worker's mini-batch of one size."""

    batch: int
    """Examples."""
    seconds: float
    """To read and compute it."""
    cpu: float
    """CPU time of the worker's process for it and its push (seconds); 0: not known."""


def batch_of(config: Config) -> int:
    """Examples that a worker computes at once: its mini-batch; of a linear model all those behind a push."""
    return config.worker_batch * (push_batches(config) if config.updates == "sparse" else 1)


@dataclass(frozen=True)
class Figures:
    """What a run is made of."""

    values: int
    """Elements of the model."""
    examples: int
    """In the training data; where a script counts steps, one for each worker."""
    steps: Sequence[Step]
    """By mini-batch, the smallest first."""
    exchange: float = 0.0
    """Of a worker for a push and the pull in its answer, without the server's part and without a network (seconds)."""
    service: float = 0.0
    """CPU time of a server for a push of the whole model (seconds)."""
    sent: float = 0.0
    """Of a push, or of the pull in its answer, whichever is more (bytes); 0: not measured."""
    worker_memory: int | None = None
    """Of a worker's process (bytes); None: not measured."""
    told: str = ""
    """Where they come from, in words."""
    counts_steps: bool = False
    """Whether a script counts its own steps (`paceline.steps`): each worker makes all of them."""

    def examples_of(self, config: Config) -> int:
        """In an epoch of this run."""
        return config.workers if self.counts_steps else self.examples

    def step(self, batch: int) -> Step:
        """A mini-batch of this size: on the line between two that are known; in proportion where one is."""
        sizes, seconds, cpus = zip(*self.steps, strict=True)
        if len(sizes) == 1:
            share = batch / sizes[0]
            return Step(batch, seconds[0] * share, cpus[0] * share)
        return Step(batch, float(np.interp(batch, sizes, seconds)), float(np.interp(batch, sizes, cpus)))

    @property
    def fixed_service(self) -> float:
        """The part of `service` that each server takes whatever the size of its slice (seconds)."""
        return min(self.service, EMPTY_PUSH)

    def served(self, servers: int) -> float:
        """CPU time of all servers together for one push (seconds)."""
        return self.service + (servers - 1) * self.fixed_service

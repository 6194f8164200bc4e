"""Timing alone: the servers' slices, policies and membership without weights and gradients, for thousands of workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.policies.policy import build_policy, is_served
from paceline.core.settings.config import Config
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import Shapes
from paceline.core.values import Empty, Reply, Update, Vector
from paceline.data.sampler import proportions
from paceline.worker.membership.member import check_batch
from paceline_studies.simulator.counting import NOTHING, CountingFolding
from paceline_studies.simulator.pace import pace_of
from paceline_studies.simulator.peers import Among
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.servers import Served
from paceline_studies.simulator.worker import Worker
from paceline_studies.simulator.workers import Training

NO_VALUES = Empty(0)


@dataclass(frozen=True, slots=True)
class Staleness:
    """Of pushes (versions)."""

    mean: float
    max: int


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """Where one worker's time went (seconds)."""

    name: str
    clock: int
    """Pushes."""
    compute: float
    push: float
    """The way to the servers, the last one's work included."""
    wait: float
    """The policy's."""
    pull: float
    """The way back."""
    staleness: float
    """Mean of its pushes (versions)."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What a simulation says of a training."""

    seconds: float
    examples: int
    dropped: int
    """Those of them whose pushes the policy has not used."""
    pushes: int
    staleness: Staleness
    events: int
    """Things that happened in virtual time."""
    workers: tuple[WorkerTimes, ...]
    choices: tuple[str, ...]
    """What a policy that changes by itself chose, in sentences."""

    @property
    def throughput(self) -> float:
        """Examples per second that are in the model."""
        return (self.examples - self.dropped) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Blank:
    """Training data and a model of which nothing but their size is known."""

    first: Vector
    values: int
    shapes: Shapes
    sizes: Sequence[int]


class Counted(Training):
    """What workers that compute nothing have in common."""

    def _batch(self, worker: Worker, position: int) -> int:
        """As numpy.array_split cuts an epoch."""
        each, more = divmod(self.data.sizes[worker.rank], self._steps)
        return each + ((position - 1) % self._steps < more)


class TimedServed(Counted, Served):
    """With servers."""

    def _new_slice(self, length: int) -> ModelSlice:
        config = self.config
        return ModelSlice(
            0,
            build_policy(config.policy),
            self._asked,
            1,
            config.schedule,
            config.epochs,
            self._pool,
            folding=CountingFolding,
        )

    def _first(self) -> list[Vector]:
        return [NOTHING] * len(self._slices)

    def _step(self, worker: Worker, position: int, count: int) -> None:
        """Nothing is computed."""

    def _updates(self, worker: Worker, examples: int) -> Sequence[Update]:
        return [NO_VALUES] * len(self._slices)

    def _content(self, number: int, reply: Reply) -> Vector:
        return NOTHING

    def _mix(self, worker: Worker, number: int, reply: Reply, values: Vector) -> None:
        """There is nothing to mix."""


class TimedAmong(Counted, Among):
    """Without servers: a value for each worker stands for the model, since an all-reduce cuts it into as many pieces."""


def timing_of(config: Config, scene: Scene, values: int, examples: int, shapes: Shapes | None = None) -> Training:
    """The simulation before its first step; the same arguments and errors as `timed`."""
    if values < 1 or examples < config.workers:
        raise ConfigError(
            f"Got a model of {values:,} weights and {examples:,} training examples for {config.workers:,} workers; expected a "
            "weight at least, and an example for each worker."
        )
    served = is_served(config.policy)
    sizes = proportions(examples, config.data.weights or (1.0,) * config.workers)
    check_batch(config, max(sizes))
    first = NOTHING if served else np.zeros(config.workers, np.float32)
    data = Blank(first, values, shapes or [("all", (values,))], sizes)
    return (TimedServed if served else TimedAmong)(config, data, pace_of(scene), scene)


def timed(
    config: Config, scene: Scene, values: int, examples: int, seed: int | None = None, shapes: Shapes | None = None
) -> Timed:
    """Simulates the timing of this run in this scene, up to its last epoch. `values`: weights of the model; `examples`: of the
    training data; `seed`: default: the run's; `shapes`: of the model's tensors, by which it is dealt to servers; default: one
    of all weights. ConfigError where the scene does not fit the config, and for what a simulation
    without gradients can't tell."""
    if seed is not None:
        config = config.model_copy(update={"seed": seed})
    training = timing_of(config, scene, values, examples, shapes)
    training.advance()
    return times_of(training)


def times_of(training: Training) -> Timed:
    """What a training that is over has taken."""
    pushes = max(1, training.pushes)
    staleness = Staleness(
        sum(worker.stale for worker in training.workers) / pushes, max(worker.most_stale for worker in training.workers)
    )
    return Timed(
        training.time.now,
        training.trained,
        training.dropped,
        training.pushes,
        staleness,
        training.time.events,
        tuple(_times(worker) for worker in training.workers),
        training.choices,
    )


def _times(worker: Worker) -> WorkerTimes:
    return WorkerTimes(
        worker.name,
        worker.clock,
        worker.compute,
        worker.pushed,
        worker.waited,
        worker.pulled,
        worker.stale / max(1, worker.clock),
    )

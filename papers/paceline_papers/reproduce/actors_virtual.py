"""[Actors]' runs in the simulator: real slices under ASP, or the real broadcast policy. Its own is here: a network
of nine weights whose gradient is written out, and how long steps and messages take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from paceline.core import kernels
from paceline.core.policies.policy import is_served
from paceline.core.settings.config import Config, Options
from paceline.core.values import Places, Vector
from paceline.data.sampler import Sampler
from paceline_studies.simulator.pace import Action
from paceline_studies.simulator.peers import ComputedAmong
from paceline_studies.simulator.problem import Array, Net, Problem
from paceline_studies.simulator.servers import Computed
from paceline_studies.simulator.timeline import Timeline
from paceline_studies.simulator.worker import Worker

SHAPES = (("0.weight", (2, 2)), ("0.bias", (2,)), ("2.weight", (1, 2)), ("2.bias", (1,)))
"""Of the model in papers/paceline_papers/reproduce/tasks/actors_xor.py."""
HIDDEN, LENGTH, SERVERS = 6, 9, 2
"""Weights of the hidden layer, which come first; all weights; [Actors]' parameter shards, one a layer."""
STEP = (0.5, 1.5)
"""Shortest and longest time of a step; 1 is the unit of time."""
ASP = Options(name="asp")
CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
LABELS = np.array([0.0, 1.0, 1.0, 0.0])


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of one seed have in common."""

    corners: Places
    """Which corner each example is: (workers, examples of each), 0 to 3."""
    first: Sequence[Vector]
    """First weights of each worker; the servers have those of the first."""
    delay: float
    """Mean time that a message is under way (steps)."""
    seed: int
    """Of the schedule."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run came to."""

    error: float
    """Mean squared error over the training data of the workers' models, the mean over the workers."""
    of_mean: float
    """That of the mean of their models."""
    published: float
    """The error as [Actors]' authors compute it: (p (1 - p) (p - y))^2 of each example while it is trained on, summed over
    all workers, divided by the examples of one."""
    updates: float
    """Values of parameters that a worker has received, the mean over the workers."""


class Xor(Net):
    """Two inputs, two sigmoid units, a sigmoid output p, and the loss (p - y)^2 / 2."""

    is_regression = True

    def __init__(self) -> None:
        self.published = 0.0
        """The sum so far of the squared derivatives of the loss by the output's logit."""

    def outputs(self, weights: Array, inputs: Array) -> Array:
        hidden = 0.5 + 0.5 * np.tanh(0.5 * (inputs @ weights[:4].reshape(2, 2).T + weights[4:HIDDEN]))
        found: Array = 0.5 + 0.5 * np.tanh(0.5 * (hidden @ weights[HIDDEN:8, None] + weights[8]))
        return found

    def gradient(self, weights: Vector, inputs: Array, labels: Array) -> Vector:
        """Of one example."""
        w11, w12, w21, w22, b1, b2, v1, v2, c = weights.tolist()
        ((x1, x2),), (y,) = inputs.tolist(), labels.tolist()
        h1, h2 = _sigmoid(w11 * x1 + w12 * x2 + b1), _sigmoid(w21 * x1 + w22 * x2 + b2)
        p = _sigmoid(v1 * h1 + v2 * h2 + c)
        delta = (p - y) * p * (1 - p)
        self.published += delta * delta
        d1, d2 = delta * v1 * h1 * (1 - h1), delta * v2 * h2 * (1 - h2)
        return np.array([d1 * x1, d1 * x2, d2 * x1, d2 * x2, d1, d2, delta * h1, delta * h2, delta], np.float32)


def _sigmoid(z: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * z)


class Drawn:
    """The pace: steps and messages take times that are drawn from the seed, in the order of events. A chief that holds no
    weights hears and answers at once, since [Actors] has none."""

    second = 1.0

    def __init__(self, setting: Setting, config: Config, time: Timeline) -> None:
        self._time = time
        self._delay = setting.delay
        self._random = Random(setting.seed)
        self.received = 0
        """Values that have set out to workers."""

    def step(self, rank: int, position: int, share: float) -> float:
        return self._random.uniform(*STEP)

    def speed(self, rank: int) -> float:
        return 1.0

    def arrived(self, sent: float) -> float:
        return sent

    def carry(self, way: tuple[str, str], values: int, action: Action) -> None:
        if not values:
            action()
            return
        if way[1].startswith("worker"):
            self.received += values
        self._time.after(self._random.uniform(0.0, 2 * self._delay), action)

    def serve(self, server: int, values: int, action: Action) -> None:
        action()


class Broadcasting(ComputedAmong):
    """Workers without servers, who still receive when they have made their last step."""

    def _left(self, worker: Worker) -> None:
        """It goes on receiving."""


class OutputOnly(Broadcasting):
    """Hidden layers are each worker's own, as in [Actors]' program, where only the output layer adds its gradients to what will
    be sent."""

    def _computed(self, worker: Worker, gradient: Vector | None, examples: int) -> None:
        assert gradient is not None
        kernels.plain_step(worker.own.local[:HIDDEN], gradient[:HIDDEN], worker.own.lr)
        gradient[:HIDDEN] = 0
        super()._computed(worker, gradient, examples)


class Experiment:
    """One training: each worker takes its examples one by one, in their order, once."""

    def __init__(self, setting: Setting, lr: float, policy: Options, output_only: bool = False) -> None:
        """`policy`: ASP, with a server for each layer, or broadcast; `output_only`: see `OutputOnly`."""
        self._net, self._examples, self._served = Xor(), setting.corners.shape[1], is_served(policy)
        shards = [(CORNERS[mine], LABELS[mine]) for mine in setting.corners]
        inputs, labels = (np.concatenate(column) for column in zip(*shards, strict=True))
        self._all = inputs, labels
        problem = Problem(self._net, setting.first[0], shards, (CORNERS, LABELS), None, self._all, SHAPES)
        kind = Computed if self._served else OutputOnly if output_only else Broadcasting
        self.training = kind(self._config(setting, lr, policy), problem, partial(Drawn, setting))
        for worker, first in zip(self.training.workers, setting.first, strict=True):
            worker.sampler = Sampler([self._examples], 1, self._examples, setting.seed, worker.name, shuffle=False)
            if not self._served:
                np.copyto(worker.own.local, first)

    def _config(self, setting: Setting, lr: float, policy: Options) -> Config:
        settings = {
            "workers": len(setting.corners),
            "servers": SERVERS if self._served else 0,
            "policy": policy.model_dump(),
            "plan": {"slices": "layerwise"},
            "optimizer": {"name": "sgd", "lr": lr, "momentum": 0.0, "weight_decay": 0.0},
            "schedule": {"lr_scale": "none"},
            "batch": "worker",
            "batch_size": 1,
            "epochs": 1,
            "budget": "per_worker",
            "seed": setting.seed,
        }
        return Config.model_validate(settings)

    @property
    def models(self) -> Array:
        """The workers', as they are now: (workers, 9)."""
        return np.array([worker.own.local for worker in self.training.workers], np.float64)

    def run(self) -> Trained:
        """Trains to the end, and until nothing is under way any more."""
        self.training.advance()
        self.training.time.to_the_end()
        models, pace = self.models, self.training.pace
        assert isinstance(pace, Drawn)
        read = LENGTH if self._served else 0  # each worker's first reading
        return Trained(
            float(np.mean([self._error(model) for model in models])),
            self._error(models.mean(axis=0)),
            self._net.published / self._examples,
            pace.received / len(models) + read,
        )

    def _error(self, model: Array) -> float:
        inputs, labels = self._all
        return self._net.loss(self._net.outputs(model, inputs), labels)

"""[Actors]' runs in virtual time: the real servers' slices and the real broadcast policy in one thread, what is pushed and
broadcast under way for a while that is drawn from a seed. No torch: the gradient of nine weights is written out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import numpy.typing as npt

from paceline.core import kernels
from paceline.core.peers.peer_policy import Group, Message, build_peer_policy
from paceline.core.peers.topology import build_topology
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import make_plan
from paceline.core.steps.optimizers.sgd import plain_sgd
from paceline.core.sync.policy import Own, build_policy
from paceline.core.values import Base, Dense, Places, Push, Seat, Vector, View
from paceline.simulator.timeline import Timeline

SHAPES = (("0.weight", (2, 2)), ("0.bias", (2,)), ("2.weight", (1, 2)), ("2.bias", (1,)))
"""Of the model in examples/actors_xor.py."""
HIDDEN, LENGTH, SERVERS = 6, 9, 2
"""Weights of the hidden layer, which come first; all weights; [Actors]' parameter shards, one a layer."""
STEP = (0.5, 1.5)
"""Shortest and longest time of a step; 1 is the unit of time."""
ASP = Options(name="asp")
LABELS = np.array([0.0, 1.0, 1.0, 0.0])
"""Of the corners (0, 0), (0, 1), (1, 0), (1, 1)."""


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


class Network(Timeline):
    """The virtual time that all live by, and the way between them."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._delay = setting.delay
        self._random = Random(setting.seed)

    def step(self, action: Callable[[], None]) -> None:
        """A worker's step begins; `action` is its end."""
        self.after(self._random.uniform(*STEP), action)

    def carry(self, action: Callable[[], None]) -> None:
        """A message is sent; `action` is its arrival."""
        self.after(self._random.uniform(0.0, 2 * self._delay), action)


class Training(ABC):
    """Workers that each take their examples one by one, once."""

    def __init__(self, setting: Setting) -> None:
        self.network = Network(setting)
        self._corners = setting.corners.tolist()
        self.models = [first.copy() for first in setting.first]
        self.received = [0] * len(self.models)
        self._steps = [0] * len(self.models)
        self._published = 0.0

    def run(self) -> Trained:
        """Trains to the end."""
        for rank in range(len(self.models)):
            self._begin(rank)
        self.network.to_the_end()
        models, corners = np.array(self.models, np.float64), np.array(self._corners)
        shares = np.bincount(corners.ravel(), minlength=len(LABELS)) / corners.size
        errors = (outputs(models) - LABELS) ** 2 @ shares
        of_mean = (outputs(models.mean(axis=0, keepdims=True)) - LABELS) ** 2 @ shares
        published = self._published / corners.shape[1]
        return Trained(float(errors.mean()), float(of_mean[0]), published, float(np.mean(self.received)))

    def _begin(self, rank: int) -> None:
        """The worker's next step begins, if it has an example left."""
        if self._steps[rank] == len(self._corners[rank]):
            return
        self._starts(rank)
        corner = self._corners[rank][self._steps[rank]]
        self._steps[rank] += 1
        found, delta = gradient(self.models[rank], corner)
        self._published += delta * delta
        self.network.step(partial(self._computed, rank, found))

    def _starts(self, rank: int) -> None:  # noqa: B027 - most have nothing to do
        """What the worker does before it computes."""

    @abstractmethod
    def _computed(self, rank: int, gradient: Vector) -> None:
        """The worker has its gradient."""


class Centralised(Training):
    """Workers that push each gradient to the servers, one for each layer, and go on with the weights that these answer with:
    ASP, with the servers' real slices."""

    def __init__(self, setting: Setting, lr: float) -> None:
        super().__init__(setting)
        self._policy = build_policy(ASP)
        self._plan = make_plan(SHAPES, SERVERS, PlanConfig(slices="layerwise"))
        self._slices = [ModelSlice(length, build_policy(ASP), plain_sgd(lr)) for length in self._plan.lengths]
        workers = range(len(self.models))
        self._bases = [[Base(1, 0)] * SERVERS for _ in workers]
        """Which version each worker has, by server."""
        self._missing = [0] * len(workers)
        """Answers that each worker waits for."""
        seats = {f"worker-{rank}": Seat(1, 0) for rank in workers}
        for number, (server, part) in enumerate(zip(self._slices, self._parts(setting.first[0]), strict=True)):
            server.initialise(part.copy(), b"first")
            server.view(View(1, seats))
            for rank in workers:
                first = server.pull()
                assert first is not None
                self._take(rank, number, first.values, 1.0)
                server.release(first)

    def _computed(self, rank: int, gradient: Vector) -> None:
        self._missing[rank] = SERVERS
        for number, part in enumerate(self._parts(gradient)):
            base, now = self._bases[rank][number], self.network.now
            push = Push(f"worker-{rank}", 1, self._steps[rank], Dense(part), 1, base, 1, now)
            self.network.carry(partial(self._push, number, push))

    def _push(self, number: int, push: Push) -> None:
        """A push has come to a server."""
        for reply in self._slices[number].push(push):
            base, values = Base(reply.term, reply.weights.version), reply.weights.values.copy()
            self._slices[number].release(reply.weights)
            alpha = self._policy.alpha(reply.others, reply.members)
            self.network.carry(
                partial(self._answered, int(reply.worker.rpartition("-")[2]), number, base, values, alpha)
            )

    def _answered(self, rank: int, number: int, base: Base, values: Vector, alpha: float) -> None:
        """A server's answer has come to a worker."""
        self._bases[rank][number] = base
        self._take(rank, number, values, alpha)
        self._missing[rank] -= 1
        if not self._missing[rank]:
            self._begin(rank)

    def _take(self, rank: int, number: int, values: Vector, alpha: float) -> None:
        self.received[rank] += len(values)
        kernels.mix(self._parts(self.models[rank])[number], values, alpha)

    def _parts(self, vector: Vector) -> list[Vector]:
        """What each server has of it, not copied."""
        return [part for (part,) in self._plan.split(vector)]


class Decentralised(Training):
    """Workers that broadcast what has grown to the threshold: the real policy."""

    def __init__(self, setting: Setting, lr: float, policy: Options, output_only: bool = False) -> None:
        """`policy`: broadcast, with its options. `output_only`: the hidden layers are each worker's own, as in [Actors]'
        program, where only the output layer adds its gradients to what will be sent."""
        super().__init__(setting)
        self._lr = lr
        self._output_only = output_only
        group = Group(1, tuple(range(len(self.models))))
        self._members = [build_peer_policy(policy) for _ in self.models]
        for rank, (member, model) in enumerate(zip(self._members, self.models, strict=True)):
            topology = build_topology(Options(name=member.usual_topology))
            member.begin(rank, group, topology, Own(model, plain_sgd(lr), lr), Random(setting.seed))

    def _starts(self, rank: int) -> None:
        self._send(self._members[rank].start())

    def _computed(self, rank: int, gradient: Vector) -> None:
        if self._output_only:
            kernels.plain_step(self.models[rank][:HIDDEN], gradient[:HIDDEN], self._lr)
            gradient[:HIDDEN] = 0
        self._send(self._members[rank].step(gradient))
        self._begin(rank)

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.network.carry(partial(self._arrived, message))

    def _arrived(self, message: Message) -> None:
        self.received[message.to] += len(message.values)
        self._send(self._members[message.to].receive(message))


def gradient(model: Vector, corner: int) -> tuple[Vector, float]:
    """Of (p - y)^2 / 2 at one of the corners, p being the network's output: (9,), and its derivative by the output's logit."""
    w11, w12, w21, w22, b1, b2, v1, v2, c = model.tolist()
    x1, x2 = corner >> 1, corner & 1
    h1, h2 = _sigmoid(w11 * x1 + w12 * x2 + b1), _sigmoid(w21 * x1 + w22 * x2 + b2)
    p = _sigmoid(v1 * h1 + v2 * h2 + c)
    delta = (p - (x1 ^ x2)) * p * (1 - p)
    d1, d2 = delta * v1 * h1 * (1 - h1), delta * v2 * h2 * (1 - h2)
    return np.array([d1 * x1, d1 * x2, d2 * x1, d2 * x2, d1, d2, delta * h1, delta * h2, delta], np.float32), delta


def _sigmoid(z: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * z)


def outputs(models: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The outputs of models (n, 9) at the four corners: (n, 4)."""
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    hidden = models[:, :4].reshape(-1, 2, 2) @ corners.T + models[:, 4:HIDDEN, None]
    logits = np.einsum("nh,nhc->nc", models[:, HIDDEN : HIDDEN + 2], 0.5 + 0.5 * np.tanh(0.5 * hidden)) + models[:, 8:]
    found: npt.NDArray[np.float64] = 0.5 + 0.5 * np.tanh(0.5 * logits)
    return found

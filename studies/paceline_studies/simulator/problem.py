"""A task's data and model for runs in virtual time. The gradients of a chain of linear layers and ReLUs are written out in
numpy, since torch takes ten times as long for a few examples; other networks are torch's. The first weights and the shards are
those of a real run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call

from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes
from paceline.core.values import Vector
from paceline.data.shards import Shard, open_shards
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import Task, load_task
from paceline.worker.training.model_and_gradient import Replica, use_threads

Array = npt.NDArray[Any]
Part = tuple[Array, Array]
"""Inputs (N, D) and labels (N,) as a task's `prepare` gives them."""
PARTS = ("train", "validation", "test")
WORST_LOSS = 1e6
"""Of a model that is no number."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What one run trains, for all its workers."""

    net: "Net"
    first: Vector
    shards: Sequence[Part]
    """Training examples of each worker."""
    test: Part
    validation: Part | None
    """None where the data set is not to have one."""
    train: Part
    """All training examples, each once."""
    shapes: Shapes
    """Of the model's tensors, in its order."""

    @property
    def values(self) -> int:
        """Weights of the model."""
        return len(self.first)

    @property
    def sizes(self) -> list[int]:
        """Training examples of each worker."""
        return [len(labels) for _, labels in self.shards]

    @property
    def examples(self) -> int:
        return sum(self.sizes)

    def score(self, weights: Vector) -> float:
        """Accuracy on the test examples, or R^2 of a regression (ratios)."""
        return self.net.score(self.net.outputs(weights, self.test[0]), self.test[1])

    def measures(self, weights: Vector, of: Sequence[str] = PARTS) -> dict[str, float]:
        """Loss and score on each part, like train_loss and test_accuracy; a model that is no number has the worst ones."""
        found = {}
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        for name, part in parts.items():
            if part is None or name not in of:
                continue
            inputs, labels = part
            with np.errstate(all="ignore"):
                outputs = self.net.outputs(weights, inputs)
                loss, score = self.net.loss(outputs, labels), self.net.score(outputs, labels)
            found[f"{name}_loss"] = loss if np.isfinite(loss) else WORST_LOSS
            found[f"{name}_accuracy"] = score if np.isfinite(loss) else 0.0
        return found


class Net(ABC):
    """A network whose weights are one vector. The loss is the cross entropy, or the mean squared error where there is one
    output."""

    is_regression: bool

    @abstractmethod
    def outputs(self, weights: Vector, inputs: Array) -> Array:
        """Of each example: (N, outputs)."""

    @abstractmethod
    def gradient(self, weights: Vector, inputs: Array, labels: Array) -> Vector:
        """Of the mean loss over the examples."""

    def score(self, outputs: Array, labels: Array) -> float:
        """Accuracy, or R^2 of a regression."""
        if self.is_regression:
            return float(1 - ((outputs[:, 0] - labels) ** 2).mean() / labels.var())
        return float((outputs.argmax(1) == labels).mean())

    def loss(self, outputs: Array, labels: Array) -> float:
        """Mean cross entropy, or the mean squared error."""
        if self.is_regression:
            return float(((outputs[:, 0] - labels) ** 2).mean())
        shifted = outputs - outputs.max(1, keepdims=True)
        return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]).mean())


class Chain(Net):
    """Linear layers with ReLUs between them. ValueError: another network."""

    def __init__(self, model: nn.Module) -> None:
        layers = [layer for layer in model.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
        linear = [layer for layer in layers[::2] if isinstance(layer, nn.Linear) and layer.bias is not None]
        if 2 * len(linear) - 1 != len(layers) or not all(isinstance(layer, nn.ReLU) for layer in layers[1::2]):
            raise ValueError(f"{model} is not a chain of linear layers and ReLUs.")
        self.shapes = [(layer.out_features, layer.in_features) for layer in linear]
        self.is_regression = self.shapes[-1][0] == 1

    def _layers(self, weights: Vector) -> list[tuple[Array, Array]]:
        """Matrix and bias of each layer, not copied."""
        found, start = [], 0
        for rows, columns in self.shapes:
            end = start + rows * columns
            found.append((weights[start:end].reshape(rows, columns), weights[end : end + rows]))
            start = end + rows
        return found

    def outputs(self, weights: Vector, inputs: Array) -> Array:
        *hidden, (matrix, bias) = self._layers(weights)
        for other, shift in hidden:
            inputs = np.maximum(inputs @ other.T + shift, 0)
        return inputs @ matrix.T + bias

    def gradient(self, weights: Vector, inputs: Array, labels: Array) -> Vector:
        layers, seen = self._layers(weights), [inputs]
        for matrix, bias in layers[:-1]:
            seen.append(np.maximum(seen[-1] @ matrix.T + bias, 0))
        matrix, bias = layers[-1]
        back = self._slope(seen[-1] @ matrix.T + bias, labels)
        found = np.empty_like(weights)
        for (matrix, _), (slope, shift), below in zip(layers[::-1], self._layers(found)[::-1], seen[::-1], strict=True):
            np.matmul(back.T, below, out=slope)
            np.sum(back, axis=0, out=shift)
            if below is not inputs:
                back = (back @ matrix) * (below > 0)
        return found

    def _slope(self, outputs: Array, labels: Array) -> Array:
        """The derivative of the mean loss by the outputs."""
        if self.is_regression:
            return (2 / len(labels)) * (outputs - labels[:, None])
        outputs -= outputs.max(1, keepdims=True)
        np.exp(outputs, out=outputs)
        outputs /= outputs.sum(1, keepdims=True)
        outputs[np.arange(len(labels)), labels] -= 1
        outputs /= np.float32(len(labels))
        return outputs


class Other(Net):
    """Any network of torch's, for classes. One thread computes it, so that its numbers are the same everywhere. ValueError: one
    with buffers, which no push carries."""

    is_regression = False

    def __init__(self, model: nn.Module) -> None:
        if any(True for _ in model.buffers()):
            raise ValueError(f"{model} has buffers; in virtual time a network has weights alone.")
        use_threads(1)
        self._model = model
        self._named = [(name, parameter.shape, parameter.numel()) for name, parameter in model.named_parameters()]

    def _outputs(self, weights: torch.Tensor, inputs: Array) -> torch.Tensor:
        parts = torch.split(weights, [length for *_, length in self._named])
        named = {name: part.view(shape) for (name, shape, _), part in zip(self._named, parts, strict=True)}
        found: torch.Tensor = functional_call(self._model, named, (torch.from_numpy(inputs),))
        return found

    def outputs(self, weights: Vector, inputs: Array) -> Array:
        self._model.eval()
        with torch.no_grad():
            return self._outputs(torch.from_numpy(weights), inputs).numpy()

    def gradient(self, weights: Vector, inputs: Array, labels: Array) -> Vector:
        self._model.train()
        flat = torch.from_numpy(weights).requires_grad_()
        loss = nn.functional.cross_entropy(self._outputs(flat, inputs), torch.from_numpy(labels))
        found: Vector = torch.autograd.grad(loss, flat)[0].numpy()
        return found


def net_of(model: nn.Module, exact: bool = False) -> Net:
    """What computes this network fastest; `exact`: with the bits of a real worker on a CPU, where it is one for classes."""
    try:
        chain = Chain(model)
    except ValueError:
        return Other(model)
    return Other(model) if exact and not chain.is_regression else chain


def problem_of(config: Config, folder: Path, exact: bool = False) -> Problem:
    """What this config trains; its shards lie in `folder`, or are written there. `exact`: see `net_of`. ValueError: a
    network or a task that is not trained so."""
    task = load_task(config.task, config.model)
    make_shards(config, folder)
    shards = open_shards(folder)
    replica = Replica(task, "cpu", config.seed)
    mine = [shards.shard(number) for number in range(len(shards))]
    if _augments(task, mine[0]):
        raise ValueError("prepare() draws random numbers; in virtual time each example is prepared once.")
    parts = [_prepared(task, shard) for shard in mine]
    once = np.unique(np.concatenate([shard.ids for shard in mine]), return_index=True)[1]
    inputs, labels = (np.concatenate(column)[once] for column in zip(*parts, strict=True))
    test = _prepared(task, shards.part("test"))
    validation = _prepared(task, shards.part("validation")) if config.data.validation else None
    net, first = net_of(replica.model, exact), replica.local.copy()
    return Problem(net, first, parts, test, validation, (inputs, labels), replica.shapes)


def _augments(task: Task, shard: Shard) -> bool:
    """Whether examples differ from one mini-batch to the next."""
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    task.prepare(np.array(shard.features[:1]), np.array(shard.labels[:1]), rng)
    return rng.bit_generator.state != before


def _prepared(task: Task, shard: Shard) -> Part:
    inputs, labels = task.prepare(np.array(shard.features), np.array(shard.labels), None)
    return inputs.numpy(), labels.numpy()

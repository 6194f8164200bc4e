"""What the workers' local models are worth together, for policies whose global model means little: their mean, their vote."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paceline.core.errors import BadPush, PacelineError, Stopped
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import Vector
from paceline.worker.peers.peer_server import pull_local
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import Array, Replica
from paceline.worker.training.split_metrics import Measuring

Splits = Mapping[str, tuple[Array, Array]]
"""Features and labels of each split."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was made of the local models that came."""

    count: int
    mean: Vector
    vote: dict[str, dict[str, float]]
    """Metrics of the vote on each split; empty where outputs are no class scores."""


class LocalModels:
    """Brings the workers' models through one replica, one after the other. Not thread-safe."""

    def __init__(self, around: Surroundings, replica: Replica, plan: SlicePlan) -> None:
        self._replica = replica
        self._plan = plan
        self._credentials = around.credentials
        self._transport = around.config.transport
        self._patience = around.config.stall_timeout
        self._stop = around.stop
        self._say = around.say

    def gather(
        self, peers: Sequence[str], splits: Splits, votes: bool, on_each: Callable[[int], None]
    ) -> Gathered | None:
        """Mean and vote of all models that can be had; `on_each` is called while the replica holds the peer's of that
        number. A peer that is gone or has diverged is left out. None where no model came."""
        mean, vote, count = np.zeros(self._replica.length, np.float32), Vote(self._replica, splits), 0
        for number, address in enumerate(peers):
            if not self._fetch(address):
                continue
            count += 1
            mean += self._replica.local
            self._replica.refresh()
            self._replica.recalibrate(*splits["train"])
            if votes:
                vote.add()
            on_each(number)
        return Gathered(count, mean / np.float32(count), vote.scores()) if count else None

    def mean(self, peers: Sequence[str]) -> tuple[Vector, int]:
        """Of all models that can be had, and how many these are."""
        total, count = np.zeros(self._replica.length, np.float32), 0
        for address in peers:
            if self._fetch(address):
                count += 1
                total += self._replica.local
        return total / np.float32(max(1, count)), count

    def _fetch(self, address: str) -> bool:
        """Whether this worker's model is in the replica now."""
        try:
            pull_local(
                address,
                self._credentials,
                self._transport,
                self._plan,
                "evaluator",
                self._replica.local,
                self._patience,
                self._stop,
            )
            if not np.isfinite(self._replica.local).all():
                raise BadPush("Its weights are not finite.")
        except Stopped:
            raise
        except PacelineError as error:
            self._say("a worker's local model is left out", address=address, why=str(error))
            return False
        return True


class Vote:
    """Soft vote: the class that the mean of the models' softmax outputs is largest for. The sums take the memory of one
    model's outputs on all splits."""

    def __init__(self, replica: Replica, splits: Splits) -> None:
        self._replica = replica
        self._splits = splits
        self._models = 0
        self._sums: dict[str, list[tuple[Tensor, Tensor]]] = {}
        """For each split its mini-batches: sum of probabilities (examples, ..., classes), labels."""
        self._is_possible = True

    def add(self) -> None:
        """Takes in the outputs of the model that the replica holds."""
        self._models += 1
        for split, arrays in self._splits.items() if self._is_possible else ():
            batches = list(self._replica.outputs(*arrays))
            self._is_possible = all(_are_class_scores(outputs, labels) for outputs, labels in batches)
            if not self._is_possible:
                self._sums = {}
                return
            found = [(torch.softmax(outputs, -1).cpu(), labels.cpu()) for outputs, labels in batches]
            known = self._sums.get(split)
            self._sums[split] = (
                found
                if known is None
                else [(before + new, labels) for (before, labels), (new, _) in zip(known, found, strict=True)]
            )

    def scores(self) -> dict[str, dict[str, float]]:
        """The task's metrics of the vote on each split, computed from its log-probabilities instead of a model's outputs."""
        return {split: self._metrics(batches) for split, batches in self._sums.items()}

    def _metrics(self, batches: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        measuring = Measuring(self._replica.task)
        for sums, labels in batches:
            measuring.add((sums / self._models).clamp_min(torch.finfo(sums.dtype).tiny).log(), labels)
        return measuring.metrics()


def _are_class_scores(outputs: object, labels: Tensor) -> bool:
    """Whether the last dimension has a score for each class of the labels, so that a softmax makes sense."""
    if not isinstance(outputs, Tensor) or outputs.ndim < 2 or labels.is_floating_point():
        return False
    return outputs.shape[:-1] == labels.shape and outputs.shape[-1] > 1

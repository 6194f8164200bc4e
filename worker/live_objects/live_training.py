"""What is sent to each process of a run that trains live objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from paceline.worker.live_objects.computing import Computing
from paceline.worker.live_objects.given_data import GivenData


@dataclass(frozen=True, slots=True, eq=False)
class LiveTraining:
    """Everything that a training in plain torch is made of. Checked by `given`."""

    model: nn.Module
    optimizer: Optimizer
    """Over the model's parameters."""
    computing: Computing
    train: Any
    """The data set that is trained on, map-style or iterable."""
    epochs: int
    batch_size: int
    kept: Mapping[str, GivenData] = field(default_factory=dict)
    """Data sets that nobody trains on: validation, test; each is loaded in its own way."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """What goes to DataLoader besides: collate_fn, num_workers, ..."""
    scheduler: Any = None
    """Of the optimizer's rate; or a function that makes one of the optimizer."""
    interval: str = "epoch"
    """What the scheduler is stepped after: epoch or step."""
    accumulate: int = 1
    """Equal parts that a mini-batch is computed in."""
    precision: str = "float32"
    compile: bool = False

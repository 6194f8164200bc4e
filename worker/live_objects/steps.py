"""A live training's steps: one mini-batch, or several parts of one, forward, backward and on to the servers; and its scheduler,
which follows the run."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.worker.live_objects.computing import sent
from paceline.worker.live_objects.live_training import LiveTraining

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Steps:
    """Not thread-safe."""

    def __init__(self, live: LiveTraining, model: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
        self._computing = live.computing
        self._model: Any = torch.compile(model) if live.compile else model
        self._optimizer = optimizer
        self._device = device
        self._parts = live.accumulate
        self._precision = _AUTOCAST.get(live.precision)
        self._scaler = torch.amp.GradScaler(device.type, enabled=live.precision == "fp16")
        self._taken = 0
        self._loss = torch.zeros((), device=device)
        """Of the parts so far."""

    def take(self, batch: Any) -> None:
        """Computes its gradients, and steps after the last part of a mini-batch."""
        if not self._taken % self._parts:
            self._optimizer.zero_grad()
            self._loss.zero_()
        loss = self._computed(sent(batch, self._device)) / self._parts
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()
        self._taken += 1
        if self._taken % self._parts:
            return
        if self._scaler.is_enabled():
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step(lambda: float(self._loss))

    def _computed(self, batch: Any) -> Tensor:
        with torch.autocast(self._device.type, self._precision, enabled=self._precision is not None):
            return self._computing.compute(self._model, batch).loss


class Schedule:
    """Not thread-safe."""

    def __init__(self, scheduler: Any) -> None:
        """None: the rate stays."""
        self._scheduler = scheduler
        self._done = 0

    def reach(self, count: int) -> None:
        """Steps until it has been stepped `count` times; does nothing if it has been."""
        while self._scheduler is not None and self._done < count:
            self._scheduler.step()
            self._done += 1

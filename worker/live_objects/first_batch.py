"""Tries a few examples in the user's own process before a run starts, so that a mistake is shown at its own line."""

import copy
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, default_collate

from paceline.core.errors import ConfigError, PacelineError
from paceline.worker.live_objects.computing import sent
from paceline.worker.live_objects.given_data import GivenData
from paceline.worker.live_objects.live_training import LiveTraining
from paceline.worker.live_objects.own_faults import TRIED
from paceline.worker.live_objects.unsent import refusal
from paceline.worker.training.large_inputs import LargeInputs

EXAMPLES = 8
"""As many are tried, if the mini-batch has as many."""


def tried(live: LiveTraining) -> tuple[dict[str, Any], list[str]]:
    """The field of its `computing` that was chosen where no loss was given, and lines for people that say so. Model and
    gradients stay as they are. Raises what the user's code raises; ConfigError where the loss has no gradient or a metric is no
    number."""
    device = next(live.model.parameters()).device
    with _undisturbed(), _noted():
        live = replace(live, model=_copied(live.model))
        batch = sent(_first(live, GivenData(live.train, loading=live.loading), "train"), device)
        large = LargeInputs(live.model)
        chosen, line = live.computing.choose(live.model.train(), batch)
        live = replace(live, computing=replace(live.computing, **chosen))
        _check_gradient(live, live.computing.compute(live.model, batch).loss)
        for name, each in live.kept.items():
            _score(live, sent(_first(live, each, name), device))
    return chosen, [each for each in (line, str(large)) if each]


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise refusal({"model": model}, error) from error


def _check_gradient(live: LiveTraining, loss: Tensor) -> None:
    trained = [parameter for parameter in live.model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss, trained, allow_unused=True) if loss.requires_grad else ()
    if all(gradient is None for gradient in found):
        raise ConfigError(
            "The loss has no gradient: it does not depend on the model's parameters, or left the graph "
            "(.detach(), .item(), torch.no_grad())."
        )


def _first(live: LiveTraining, given: GivenData, name: str) -> Any:
    """A mini-batch of the first examples."""
    count, rows = min(EXAMPLES, live.batch_size), given.rows
    if isinstance(rows, IterableDataset):
        examples = list(itertools.islice(iter(rows), count))
    else:
        examples = [rows[number] for number in range(min(count, len(rows)))]
    if not examples:
        raise ConfigError(f"{name} has no examples. Give at least one.")
    return given.loading.get("collate_fn", default_collate)(examples)


def _score(live: LiveTraining, batch: Any) -> None:
    with torch.no_grad():
        found = live.computing.compute(live.model.eval(), batch)
        for name, metric in live.computing.metrics.items():
            arguments = (live.model, batch) if live.computing.batch_loss else (found.outputs, found.targets)
            value = metric(*arguments)
            try:
                float(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"metrics[{name!r}] gave {type(value).__name__}; expected one number.") from error


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves the random generators as they were."""
    kept, numpys = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(kept)
        np.random.set_state(numpys)


@contextmanager
def _noted() -> Iterator[None]:
    try:
        yield
    except PacelineError:
        raise
    except Exception as error:
        error.add_note(TRIED)
        raise

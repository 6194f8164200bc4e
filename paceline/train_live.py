"""`paceline.train` of live objects: what it does before and after the run of processes."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from paceline.core.errors import PacelineError
from paceline.core.settings.config import Config
from paceline.live.packing import pack
from paceline.load_settings import given as all_given
from paceline.load_settings import load
from paceline.local.capacity import refuse_too_many
from paceline.local.cpu_cores import processes_here
from paceline.local.run_folder import RUNS, RunFolder, open_run
from paceline.own_extensions import check_own
from paceline.result import Result
from paceline.worker.live import first_batch
from paceline.worker.live.given import Given, read
from paceline.worker.live.live_training import LiveTraining
from paceline.worker.live.unsent import refusal

Run = Callable[[Config, RunFolder, int], None]
"""Trains in the folder with the objects behind this descriptor; raises how it ended where it did not finish."""


def train_live(
    model: nn.Module,
    given: Given,
    overrides: Mapping[str, Any],
    folder: Path | None,
    yes: bool,
    show: Callable[[str], None],
    run: Run,
) -> Result:
    """The model has the final weights afterwards. `overrides`: the run's settings, over what the objects say."""
    task = re.sub(r"\W+", "-", type(model).__name__)
    data = dict(overrides.get("data") or {})
    settings = {"workers": processes_here(), **overrides, "task": task, "data": {**data, "source": "script"}}
    if folder is not None:
        settings["run"] = folder.name
    wanted = load(None, settings)
    check_own(wanted)
    refuse_too_many(wanted, yes, "yes=True")
    live, lines = read(
        model, replace(given, shares={key: data[key] for key in ("validation", "test") if key in data}), wanted
    )
    with packed(live) as (memory, chosen):
        place, config = open_run(wanted, runs=RUNS if folder is None else folder.parent, given=all_given(settings))
        if not place.facts().get("finished"):
            for line in [*lines, *chosen]:
                show(line)
            run(config, place, memory)
    result = Result(place.path, model)
    result.load_into(model)
    return result


@contextmanager
def packed(live: LiveTraining) -> Iterator[tuple[int, list[str]]]:
    """The descriptor of memory with the objects, which is gone afterwards, and what was chosen for them. ConfigError: a part of
    them can't be sent; and whatever the first examples fail with."""
    chosen, lines = first_batch.tried(live)
    memory = _pack(replace(live, computing=replace(live.computing, **chosen)))
    try:
        yield memory, lines
    finally:
        os.close(memory)


def _pack(live: LiveTraining) -> int:
    try:
        return pack(live)
    except PacelineError:
        raise
    except Exception as error:
        parts = {
            "model": live.model,
            "train": live.train,
            **live.kept,
            "loss": live.computing.loss,
            "batch_loss": live.computing.batch_loss,
            "metrics": live.computing.metrics,
            "optimizer": live.optimizer,
            "scheduler": live.scheduler,
            **live.loading,
        }
        raise refusal(parts, error) from error

"""`paceline.train` of live objects: what it does before and after the run of processes."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RUNS, RunFolder, open_run
from paceline.launch.this_machine.capacity import refuse_too_many
from paceline.launch.this_machine.processors import processes_here
from paceline.results.result import Result
from paceline.server.description import described
from paceline.settings.load_settings import differences, load
from paceline.settings.load_settings import settings_above as all_given
from paceline.settings.own_extensions import check_own
from paceline.worker.live_objects import first_batch
from paceline.worker.live_objects.given import TrainArguments, read
from paceline.worker.live_objects.live_training import LiveTraining
from paceline.worker.live_objects.unsent import pack_or_refuse
from paceline.worker.script.torch_optimizers import described as described_optimizer

FINISHED = "run {0.name} in {0.path} is finished already: nothing was trained (another folder= trains)"
"""What to say of a run's folder."""
Run = Callable[[Config, RunFolder, int], None]
"""Trains in the folder with the objects behind this descriptor; raises how it ended where it did not finish."""


def train_live(
    model: nn.Module,
    given: TrainArguments,
    overrides: Mapping[str, Any],
    folder: Path | None,
    yes: bool,
    show: Callable[[str], None],
    run: Run,
) -> Result:
    """The model has the final weights afterwards. `overrides`: the run's settings, over what the objects say."""
    data = overrides.get("data") or {}
    wanted, said = settled(type(model).__name__, overrides, folder, yes)
    live, lines = read(
        model, replace(given, shares={key: data[key] for key in ("validation", "test") if key in data}), wanted
    )
    with packed(live) as (memory, chosen):
        place, config = open_run(wanted, runs=RUNS if folder is None else folder.parent, given=said)
        if place.facts().get("finished"):
            _check_same(place, live)
            show(FINISHED.format(place))
        else:
            for line in [*lines, *chosen]:
                show(line)
            run(config, place, memory)
    result = Result(place.path, model)
    result.load_into(model)
    return result


def settled(name: str, overrides: Mapping[str, Any], folder: Path | None, yes: bool) -> tuple[Config, dict[str, Any]]:
    """The settings of a run of objects, which is named by them unless it has a folder, and those that were given. Raises
    ConfigError; UsageError if the run is too large for this machine, without a `yes`."""
    here = {"workers": processes_here()}
    data = {**(overrides.get("data") or {}), "source": "script"}
    settings = {**overrides, "task": re.sub(r"\W+", "-", name), "data": data}
    if folder is not None:
        settings["run"] = folder.name
    wanted = load(None, settings, here)
    check_own(wanted)
    refuse_too_many(wanted, yes, "yes=True")
    return wanted, all_given(settings, below=here)


def _check_same(place: RunFolder, live: LiveTraining) -> None:
    """ConfigError where the finished run was asked for something else; the servers tell one that goes on."""
    before = described(place.server(0))
    if before is None:
        return
    now: dict[str, Any] = {"epochs": live.epochs, "batch_size": live.batch_size}
    with suppress(ConfigError):  # one whose steps only workers can take
        now["optimizer"] = described_optimizer(live.optimizer, live.model)
    before.get("optimizer", {}).pop("averaged", None)  # these are the model's
    if found := differences({key: before.get(key) for key in now}, json.loads(json.dumps(now))):
        raise ConfigError(
            f"The run in {place.path} is finished, and had other settings: {'; '.join(found)}. Give another folder."
        )


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
    arguments = {
        "model": live.model,
        "train": live.train,
        **{name: each.rows for name, each in live.kept.items()},
        **{f"{name}'s collate_fn": each.loading.get("collate_fn") for name, each in live.kept.items()},
        "loss": live.computing.loss,
        "batch_loss": live.computing.batch_loss,
        "metrics": live.computing.metrics,
        "optimizer": live.optimizer,
        "scheduler": live.scheduler,
        **live.loading,
    }
    return pack_or_refuse(live, arguments)

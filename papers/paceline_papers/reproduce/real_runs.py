"""Runs at the papers' size: real processes, each run in a folder that stays, so that it goes on where it was broken off."""

import atexit
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import product
from math import nan
from typing import Any

from paceline.core.chief.scoring import Score
from paceline.core.errors import PacelineError, Stopped, UsageError, error_of
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking
from paceline.launch.settings.read_config import complete
from paceline.launch.status.live_table import Show
from paceline.launch.supervise.launcher import run_local
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.this_machine.processors import threads_of
from paceline.launch.this_machine.signals import CTRL_C
from paceline.results.result import Result
from paceline.settings.load_settings import parse_sets
from paceline_papers.reproduce.recipe import Around

_OPEN = ExitStack()
atexit.register(_OPEN.close)
_LOADED: dict[tuple[object, ...], Mapping[str, Forker]] = {}
"""What starts the processes of runs that have the same updates, threads, task and strategy."""


def trained(around: Around, name: str, preset: str, settings: Mapping[str, Any], keeps: bool = False) -> Result:
    """The finished run of that name; trains it, or what is left of it. `settings`: by key, like data.strategy. `keeps`: its
    shards and models stay, which are up to 2 GB; its logs and scores always do. UsageError: the user's own settings are among
    these; PacelineError: the run failed, or has no score; KeyboardInterrupt or Stopped: it was ended."""
    config = config_of(around, name, preset, settings)
    assert around.finish is not None
    _follow_data(RunFolder(around.folder / str(config.run)), around.data)
    folder, outcome = around.finish(config, around.folder)
    check_finished(folder, outcome)
    if not (result := Result(folder.path)).metrics:
        raise PacelineError(
            f"Run '{folder.name}' ended without a score: {outcome.reason or 'no score came in time'}. Move "
            f"{folder.path} away, and the same command makes this run again."
        )
    for each in (*folder.path.glob("server-*"), *([] if keeps else [folder.shards, folder.models])):
        shutil.rmtree(each, ignore_errors=True)
    return result


def _follow_data(place: RunFolder, path: str) -> None:
    """A run that was broken off goes on with its data set where that is now: its content is known to be the same."""
    if place.config.exists() and (before := place.settings()).data.path != path:
        moved = before.data.model_copy(update={"path": path})
        place.rewrite(before.model_copy(update={"data": moved}).model_dump(mode="json"))


def run_small(config: Config, place: RunFolder, show: Show = lambda status, rate, causes: None, **more: Any) -> Outcome:
    """`run_local` without a word, its processes forked from what earlier runs like it have loaded; not for several threads."""
    return run_local(config, place.path, lambda line: None, show, forkers=loaded(config), **more)


def loaded(config: Config) -> Mapping[str, Forker]:
    """What forks the processes of a run, by role; runs that are alike share it. For the main thread."""
    alike = config.updates, threads_of(config), config.task, config.data.strategy.name
    if alike not in _LOADED:
        _LOADED[alike] = _OPEN.enter_context(forking(config))
    return _LOADED[alike]


def check_finished(folder: RunFolder, outcome: Outcome) -> None:
    """KeyboardInterrupt or Stopped: the run was ended; the PacelineError of its exit code: it failed."""
    if outcome.exit_code == CTRL_C:
        raise KeyboardInterrupt
    if outcome.exit_code == Stopped.exit_code:
        raise Stopped(f"Run '{folder.name}' was stopped.")
    if not outcome.is_finished:
        logs = "" if outcome.refused else f" See {folder.path / 'logs'}."
        raise error_of(outcome.exit_code)(f"Run '{folder.name}' ended: {outcome.reason}{logs}")


def by_epoch(result: Result, figure: Callable[[Score], float]) -> list[float]:
    """A figure of its score after each epoch; NaN where the evaluator was busy and skipped one."""
    found = {score.epoch: figure(score) for score in result.history}
    return [found.get(epoch, nan) for epoch in range(1, max(found, default=0) + 1)]


def config_of(around: Around, name: str, preset: str, settings: Mapping[str, Any]) -> Config:
    """The preset with the recipe's settings on top, and the user's own; a run that diverges does not go on at a lower rate than
    the paper's. UsageError where both say the same."""
    run = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    own = {**settings, "data.path": around.data, "run": run, "divergence.rollbacks": 0}
    for pair, said in product(around.sets, own):
        key = pair.partition("=")[0]
        if f"{key}.".startswith(f"{said}.") or f"{said}.".startswith(f"{key}."):
            raise UsageError(f"--set {pair}: the recipe itself says {said}. Leave this out.")
    return complete(
        parse_sets([*(f"{key}={json.dumps(value)}" for key, value in own.items()), *around.sets]), preset=preset
    )

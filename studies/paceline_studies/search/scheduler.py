"""Runs the points of a search or a comparison as processes side by side, as many as the cores allow, or in this process."""

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from paceline.base.terminal import show
from paceline.core.chief.best_model import Measure, scores_of
from paceline.core.errors import PacelineError
from paceline.core.settings.config import Config
from paceline.data.shards import is_there
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking_runs
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.supervise.outcome import FINISHED
from paceline.launch.this_machine.capacity import refuse_too_many
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.processors import DEVICES, VISIBLE, own_cores, visible_gpus
from paceline.launch.this_machine.signals import CTRL_C, Signals
from paceline_studies.search.folder import Measured, SearchFolder, measured
from paceline_studies.search.grid import in_words

POLL = 0.05
"""Seconds between two looks at the processes."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of settings."""

    number: int
    values: Mapping[str, Any]
    """Its settings by key."""
    configs: list[Config]
    """Of its run, or of one run for each fold; `run` is the run's name."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run that waits, or goes on."""

    point: Point
    config: Config
    child: Child


Ended = Callable[[Point, str | None], Point | None]
"""Hears of each point whose runs have ended, with why one failed; gives the point to train next, if it chooses that."""


@dataclass(slots=True)
class Scheduler:
    """Of one go at a search or a comparison."""

    folder: SearchFolder
    count: int
    """Of the points."""
    console: Console
    cores: int
    """For all runs together."""
    device: str
    by: Measure | None = None
    here: Callable[[Config, RunFolder], None] | None = None
    """Trains a run in this process; None: runs are processes."""
    kind: str = "point"
    """What people call a point."""
    is_stopped: bool = False
    """By Ctrl-C or SIGTERM."""
    _free: list[int] = field(default_factory=list)
    """Cores that no run has."""
    _waiting: deque[Job] = field(default_factory=deque)
    _running: list[Job] = field(default_factory=list)
    _left: dict[int, int] = field(default_factory=dict)
    """Runs of each point that have not ended."""
    _failures: dict[int, str] = field(default_factory=dict)
    """Why a run of each point has failed, while others of it go on."""
    _code: int = 0
    _dealt: int = 0
    """Workers that GPUs were dealt to."""

    def run(self, points: Iterator[Point], ended: Ended = lambda point, error: None) -> int:
        """Trains the runs that are not finished, the next point's as soon as cores are free. Returns 0, the exit code of the
        first run that failed (the others go on), or that of a Ctrl-C or SIGTERM, after which no process is left. Call it from
        the main thread."""
        if self.here is not None:
            return self._train_here(points, ended, self.here)
        self._free = list(itertools.islice(itertools.cycle(sorted(own_cores())), self.cores))
        with ExitStack() as stack, Signals() as signals:
            forker: Forker | None = None
            try:
                while signals.exit_code is None and self._has_more(points, ended):
                    if forker is None and self._waiting:
                        forker = stack.enter_context(forking_runs(self._waiting[0].config))
                    while self._waiting and self._can_start(self._waiting[0], forker):
                        self._start(self._waiting.popleft(), forker)
                    for job in [job for job in self._running if not job.child.running]:
                        self._running.remove(job)
                        self._free += job.child.cores
                        self._end(job, ended)
                    time.sleep(POLL)
            finally:
                end_all([job.child for job in self._running], signals.hurry)
            self.is_stopped = signals.exit_code is not None
            return signals.exit_code or self._code

    def _train_here(self, points: Iterator[Point], ended: Ended, train: Callable[[Config, RunFolder], None]) -> int:
        try:
            while self._has_more(points, ended):
                job = self._waiting.popleft()
                try:
                    train(job.config, self.folder.start_over(job.config))
                except PacelineError as error:
                    self._note(job, ended, str(error), error.exit_code)
                else:
                    self._note(job, ended)
        except KeyboardInterrupt:
            self.is_stopped = True
            return CTRL_C
        return self._code

    def _has_more(self, points: Iterator[Point], ended: Ended) -> bool:
        """Whether runs wait or go on; takes the next point where nothing waits and cores are free."""
        while not self._waiting and (self._free or not self._running):
            point = next(points, None)
            if point is None:
                break
            self._enter(point, ended)
        return bool(self._waiting or self._running)

    def _enter(self, point: Point | None, ended: Ended) -> None:
        """Its runs come first, those that are not finished."""
        while point is not None and not (todo := self.folder.unfinished(point.configs)):
            point = ended(point, None)
        if point is not None:
            self._left[point.number] = len(todo)
            self._waiting.extendleft(self._job(point, config) for config in reversed(todo))

    def _job(self, point: Point, config: Config) -> Job:
        folder = self.folder.run(str(config.run))
        words = ["-m", "paceline_studies.search.point", "--folder", str(folder.path), "--device", self.device]
        return Job(point, config, Child(folder.name, "job", words, folder.log("point"), child_environment(1)))

    def _can_start(self, job: Job, forker: Forker | None) -> bool:
        """A run with more workers than there are cores runs alone; one whose shards another run makes waits for them."""
        shards = self.folder.shards(job.config)
        has_shards = is_there(shards) or all(self.folder.shards(each.config) != shards for each in self._running)
        has_cores = _cores(job.config) <= len(self._free) or not self._running
        return has_cores and has_shards and (forker is None or forker.is_ready)

    def _start(self, job: Job, forker: Forker | None) -> None:
        count, child = _cores(job.config), job.child
        child.cores, self._free = self._free[:count], self._free[count:]
        child.environment = {**child.environment, **self._gpus(job.config.workers)}
        child.forker = forker
        self.folder.start_over(job.config)
        child.start()
        self._running.append(job)
        show(self.console, f"{self._name(job)}: started")

    def _gpus(self, workers: int) -> dict[str, str]:
        """What the next run sees of this machine's GPUs, which its workers take in turn: another one first than for the run
        before."""
        gpus = visible_gpus(os.environ, DEVICES) if self.device == "auto" else []
        if len(gpus) < 2:
            return {}
        first = self._dealt % len(gpus)
        self._dealt += workers
        return {VISIBLE: ",".join([*gpus[first:], *gpus[:first]])}

    def _end(self, job: Job, ended: Ended) -> None:
        """A process has ended."""
        folder, code = self.folder.run(str(job.config.run)), job.child.code or 0
        if code not in FINISHED or measured(folder) is None:
            facts = folder.facts()
            reason = facts.get("reason") if facts.get("exit_code") else None
            error = str(reason or f"it {job.child.how_it_ended()} and printed:{job.child.tail()}")
            self._note(job, ended, error, code if code > 0 else PacelineError.exit_code)
        else:
            self._note(job, ended)

    def _note(self, job: Job, ended: Ended, error: str | None = None, code: int = 0) -> None:
        """A run has ended, and with its last run the point."""
        folder, number = self.folder.run(str(job.config.run)), job.point.number
        if error is None:
            show(self.console, f"{self._name(job)}: {self._score(measured(folder), job)}")
        else:
            self._code = self._code or code
            self._failures[number] = error
            show(self.console, f"{self._name(job)} failed: {error}\n    See {folder.path / 'logs'}.")
        self._left[number] -= 1
        if not self._left[number]:
            self._enter(ended(job.point, self._failures.pop(number, None)), ended)

    def _name(self, job: Job) -> str:
        fold = job.config.data.fold if len(job.point.configs) > 1 else None
        part = f", fold {fold[0]}" if fold else ""
        return f"{self.kind} {job.point.number} of {self.count} ({in_words(job.point.values)}){part}"

    def _score(self, found: Measured | None, job: Job) -> str:
        assert found is not None
        splits = ("test",) if len(job.point.configs) > 1 else ("validation", "test")
        if self.by is not None:
            self.by.check({name for split in splits for name in scores_of(found.metrics, split)}, "--by")
        wanted = [*([self.by.name] if self.by else []), "accuracy", "loss"]
        names = [f"{split}_{metric}" for split in splits for metric in wanted]
        name = next((name for name in names if name in found.metrics), None)
        score = f"{name.replace('_', ' ')} {found.metrics[name]:.4f}" if name else "not scored"
        return f"{score}, {found.epochs:.1f} epochs, {found.seconds:.1f} s"


def _cores(config: Config) -> int:
    return config.workers + config.servers


def refuse_too_many_runs(configs: list[Config], cores: int, yes: bool) -> None:
    """Asks, as `paceline run` does, before the most processes that there would be at a time."""
    if configs:
        largest = max(configs, key=lambda config: config.workers + config.server_processes)
        refuse_too_many(largest, yes, runs=min(len(configs), max(1, cores // _cores(largest))))

"""One go at a search: what is finished stays, the other runs are done, and each says how it ended."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rich.console import Console

from paceline.base.terminal import show
from paceline.core.errors import PacelineError
from paceline.core.run.best_model import Measure, scores_of
from paceline.core.settings.config import Config
from paceline.data.shards import is_there
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking_runs
from paceline.launch.this_machine.gpus import DEVICES, VISIBLE, visible_gpus
from paceline.studies.search import points_in_process
from paceline.studies.search.grid import Grid, told
from paceline.studies.search.jobs import Job, run_jobs
from paceline.studies.search.points import Point
from paceline.studies.search.results import Results, Row, measured, row_of
from paceline.studies.search.search_folder import SearchFolder


class Going:
    """One go at a search. Leave it as a context: it ends what its runs are forked from."""

    def __init__(
        self,
        folder: SearchFolder,
        count: int,
        cores: int,
        device: str,
        console: Console,
        by: Measure | None,
        here: Callable[[Config, RunFolder], None] | None = None,
        kind: str = "point",
    ) -> None:
        """`here`: what trains a run in this process, if not `train_point`; `kind`: what people call a point."""
        self._folder = folder
        self._count = count
        """Of the points."""
        self._cores = cores
        self._device = device
        self._console = console
        self._by = by
        self._here = here or points_in_process.train_point
        self._kind = kind
        self._names: dict[str, str] = {}
        """What a person calls a run, by its name."""
        self._failures: dict[str, str] = {}
        """By the run's name, why it failed."""
        self._entered: set[str] = set()
        """Names of the runs that were finished, or to be done."""
        self._has_folds = False
        """Whether a point is several runs."""
        self._code = 0
        self.is_stopped = False
        """By Ctrl-C or SIGTERM."""
        self._stack = ExitStack()
        self._forker: Forker | None = None
        """Starts the runs; None before the first one, and where fork is not safe."""
        self._dealt = 0
        """Workers that GPUs were dealt to."""

    def __enter__(self) -> "Going":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, engine: str, points: list[Point]) -> int:
        """Makes the shards that runs need, then the runs; or trains in this process. The exit code."""
        self._has_folds = any(len(point.configs) > 1 for point in points)
        todo = unfinished(points, self._folder)
        names = {str(config.run): self._called(point, config) for point in points for config in point.configs}
        self._names |= names
        self._entered.update(names)
        if len(todo) < len(names):
            done = f"{len(names) - len(todo)} of {len(names)} runs are finished already"
            show(self._console, f"{done}; --fresh starts them over.")
        for config in todo:
            self._folder.start_over(config, has_shards=engine == "runs")
        if engine == "local":
            return self._train_here(todo)
        stopped = self._shard(todo)
        if stopped is None:
            ready = [config for config in todo if str(config.run) not in self._failures]
            if ready and self._forker is None:
                self._forker = self._stack.enter_context(forking_runs(ready[0]))
            stopped = run_jobs([self._job(config) for config in ready], self._cores, self._ended, self._started)
        self.is_stopped = stopped is not None
        return self._code if stopped is None else stopped

    def _called(self, point: Point, config: Config) -> str:
        fold = f", fold {config.data.fold[0]}" if len(point.configs) > 1 and config.data.fold else ""
        return f"{point.number} of {self._count} ({told(point.values)}){fold}"

    def _train_here(self, todo: list[Config]) -> int:
        try:
            for config in todo:
                self._train_one(config, str(config.run))
        except KeyboardInterrupt:
            self.is_stopped = True
            return 130
        return self._code

    def _train_one(self, config: Config, name: str) -> None:
        folder = self._folder.run(name)
        try:
            self._here(config, folder)
        except PacelineError as error:
            self._failed(name, error.exit_code, str(error))
        else:
            self._told(name, folder)

    def rows(self, grid: Grid, rounds: list[list[Point]]) -> list[Row]:
        """What each point gave in the last round that it was in."""
        return [self._row(grid, found) for found in zip(*rounds, strict=True)]

    def _row(self, grid: Grid, rounds: Sequence[Point]) -> Row:
        entered = [point for point in rounds if str(point.configs[0].run) in self._entered] or rounds[:1]
        *earlier, last = [[self._folder.run(str(config.run)) for config in point.configs] for point in entered]
        point, full = entered[-1], rounds[-1].configs
        paper = next((found for found in grid.paper if found.is_about(full[0])), None)
        row = row_of(point.number, point.values, last, self._failures, paper)
        before = [found for folder in chain(*earlier) if (found := measured(folder)) is not None]
        return replace(row, round=len(earlier), before=before, in_full=float(sum(config.epochs for config in full)))

    def say(self, words: str) -> None:
        """To who watches the search."""
        show(self._console, words)

    def halved(self, rows: list[Row], points: list[Point], count: int) -> list[int]:
        """Says which points go on, the best first, to the round of these points. Their numbers."""
        folds = len(points[0].configs)
        results = Results(rows, folds if folds > 1 else None, self._by)
        results.check()
        last = max(row.round for row in rows)
        numbers = [row.number for row in results.ranked if row.round == last][:count]
        listed = ", ".join(str(number) for number in sorted(numbers)) or "none"
        show(self._console, f"halving: {points[0].configs[0].epochs} epochs for point {listed}; the others end here")
        return numbers

    def _shard(self, todo: list[Config]) -> int | None:
        """Each set of shards once; runs whose shards can't be made have failed."""
        users: dict[str, list[Config]] = {}
        for config in todo:
            users.setdefault(str(self._folder.shards(config)), []).append(config)

        def ended(job: Job, code: int) -> None:
            for config in users[job.name] if code else ():
                self._failed(str(config.run), code, f"no shards; the sharder said:{job.child.tail()}")

        jobs = []
        for path, configs in users.items():
            if not is_there(Path(path)):
                user = self._folder.run(str(configs[0].run))
                arguments = ["-m", "paceline.sharder", "--config", str(user.config), "--out", path]
                jobs.append(Job(path, arguments, user.log("sharder")))
        return run_jobs(jobs, self._cores, ended)

    def _job(self, config: Config) -> Job:
        folder = self._folder.run(str(config.run))
        arguments = ["-m", "paceline.studies.search.point", "--folder", str(folder.path), "--device", self._device]
        cores, gpus = config.workers + config.servers, self._gpus(config.workers)
        return Job(folder.name, arguments, folder.log("point"), cores, self._forker, gpus)

    def _gpus(self, workers: int) -> dict[str, str]:
        """What the next run sees of this machine's GPUs, which its workers take in turn: another one first than for the run
        before."""
        gpus = visible_gpus(os.environ, DEVICES) if self._device == "auto" else []
        if len(gpus) < 2:
            return {}
        first = self._dealt % len(gpus)
        self._dealt += workers
        return {VISIBLE: ",".join([*gpus[first:], *gpus[:first]])}

    def _started(self, job: Job) -> None:
        show(self._console, f"{self._kind} {self._names[job.name]}: started")

    def _ended(self, job: Job, code: int) -> None:
        folder = self._folder.run(job.name)
        found = measured(folder)
        if code or found is None:
            self._failed(job.name, code or PacelineError.exit_code, _reason(folder, job))
            return
        self._told(job.name, folder)

    def _told(self, run: str, folder: RunFolder) -> None:
        """Says what a finished run gave."""
        found = measured(folder)
        assert found is not None
        splits = ("test",) if self._has_folds else ("validation", "test")
        if self._by is not None:
            self._by.check({name for split in splits for name in scores_of(found.metrics, split)}, "--by")
        wanted = [*([self._by.name] if self._by else []), "accuracy", "loss"]
        names = [f"{split}_{metric}" for split in splits for metric in wanted]
        name = next((name for name in names if name in found.metrics), None)
        score = f"{name.replace('_', ' ')} {found.metrics[name]:.4f}" if name else "not scored"
        spent = f"{found.epochs:.1f} epochs, {found.seconds:.1f} s"
        show(self._console, f"{self._kind} {self._names[run]}: {score}, {spent}")

    def _failed(self, name: str, code: int, why: str) -> None:
        self._failures[name] = why
        self._code = self._code or (code if code > 0 else PacelineError.exit_code)
        logs = self._folder.run(name).path / "logs"
        show(self._console, f"{self._kind} {self._names[name]} failed: {why}\n    See {logs}.")


def _reason(folder: RunFolder, job: Job) -> str:
    """Why the run failed: what its launcher noted, otherwise what it said last."""
    facts = folder.facts()
    noted = facts.get("reason") if facts.get("exit_code") else None
    return str(noted or f"it {job.child.how_it_ended()} and said:{job.child.tail()}")


def unfinished(points: list[Point], folder: SearchFolder, fresh: bool = False) -> list[Config]:
    """The runs that are left to do, of a search that may have begun; all of them where it begins `fresh`."""
    configs = [config for point in points for config in point.configs]
    return [config for config in configs if fresh or measured(folder.run(str(config.run))) is None]

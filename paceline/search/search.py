"""`paceline search`: every point of a grid as a run, several at a time, and a table of what they gave."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from paceline.core.errors import ConfigError, PacelineError, UsageError
from paceline.core.rules.check_rules import refuse
from paceline.core.rules.rules_of_settings import SEARCH
from paceline.core.run.best_model import Measure
from paceline.core.settings.config import Config
from paceline.data.shards import is_there
from paceline.extras import is_installed, lacks
from paceline.local.capacity import refuse_too_many
from paceline.local.run_folder import RunFolder, new_name
from paceline.search import points_in_process
from paceline.search.grid import Grid, pairs, told
from paceline.search.halving import budgets, kept
from paceline.search.jobs import Job, own_cores, run_jobs
from paceline.search.results import ACCURACY, LOSS, Results, Row, measure_by, measured, row_of
from paceline.search.search_folder import SEARCHES, SearchFolder, open_search
from paceline.terminal import show

PICTURE = "results.png"
ENGINES = ("runs", "local")
"""What trains the points: real runs, or this process (linear models only)."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the grid's values."""

    number: int
    values: dict[str, Any]
    configs: list[Config]
    """Of its run, or of one run for each fold; `run` is the run's name."""


def search(
    grid: Grid,
    read: Callable[[Sequence[str]], Config],
    folds: int | None,
    cores: int | None,
    out: Path | None,
    fresh: bool,
    as_json: bool,
    *,
    device: str = "auto",
    by: str | None = None,
    engine: str = "runs",
    yes: bool = False,
    halving: int | None = None,
) -> int:
    """Runs what is not finished yet and shows the results. `read`: the config with these settings on top (`--set`); `by`:
    the metric that points are compared by, like f1 or 'min mae', instead of what the runs are judged by; `engine`: one of
    ENGINES; `yes`: start even what this machine is too small for; `halving`: of how many points one goes on to the next
    round, which has that many times the epochs. Returns 0, the exit code of the first run that failed
    (the others go on), or of a Ctrl-C. ConfigError before anything is started where a point's settings are wrong, or the
    folder holds another search."""
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine}: expected {' or '.join(ENGINES)}.")
    console, measure = Console(stderr=as_json, highlight=False), None if by is None else measure_by(by)
    rounds = _rounds(grid, read, folds, halving)
    points, first = [point for one in rounds for point in one], rounds[-1][0].configs[0]
    what: dict[str, Any] = {"grid": grid.listed, "folds": folds, "settings": first.model_dump(mode="json")}
    if halving:
        what["halving"] = halving
    if grid.drawn is not None:
        what["points"] = list(grid.drawn)
    if engine == "local":
        for point in points:
            for config in point.configs:
                refuse(config, {SEARCH: engine})
        what["engine"] = engine
    path = out or SEARCHES / new_name(first, SEARCHES)
    if engine != "local":
        _refuse_too_many(_unfinished(points, SearchFolder(path), fresh), cores or len(own_cores()), yes)
    with open_search(path, what, fresh) as folder:
        runs = f"{len(rounds[0])} points" + (f" with {folds} folds each" if folds else "")
        show(console, f"search in {folder.path}: {runs}; {first.task}, {' x '.join(grid.values)}")
        going = _Going(folder, points, cores or len(own_cores()), device, console, measure)
        code = _run_rounds(going, grid, rounds, engine, halving)
        size = grid.size if grid.drawn else None
        size = size or (len(rounds[0]) if halving else None)
        results = Results(going.rows(grid, rounds), folds, measure, size)
        results.check()
        _write(folder, grid, results, console)
    if as_json:
        print(json.dumps({"folder": str(path), "exit_code": code, **results.plain()}))
    else:
        console.print(results.table(f"{first.task}, {first.policy.name}"))
        for line in (*filter(None, [results.cost]), *results.warnings()):
            show(console, line)
        show(console, _last(results, path, code))
    return code


def _rounds(
    grid: Grid, read: Callable[[Sequence[str]], Config], folds: int | None, halving: int | None
) -> list[list[Point]]:
    """The points as each round trains them, the last round in full; without halving there is one round."""
    points = points_of(grid, read, folds)
    if not halving:
        return [points]
    if "epochs" in grid.values:
        raise UsageError(f"--grid epochs and --halving {halving}: both choose the epochs; leave one of them out.")
    *short, _ = budgets(points[0].configs[0].epochs, len(points), halving)
    return [*(points_of(grid, read, folds, epochs) for epochs in short), points]


def _run_rounds(going: "_Going", grid: Grid, rounds: list[list[Point]], engine: str, halving: int | None) -> int:
    """Each round with the best points of the one before. The exit code."""
    code, numbers = 0, [point.number for point in rounds[0]]
    for number, points in enumerate(rounds):
        code = going.run(engine, [point for point in points if point.number in numbers])
        if going.is_stopped or halving is None or number + 1 == len(rounds):
            break
        count = kept(len(points), halving, number + 1)
        numbers = going.halved(going.rows(grid, rounds), rounds[number + 1], count)
    return code


def points_of(
    grid: Grid, read: Callable[[Sequence[str]], Config], folds: int | None, epochs: int | None = None
) -> list[Point]:
    """All points with checked configs; `epochs` replaces their own setting. ConfigError names the point whose settings
    are wrong; UsageError: folds twice."""
    if folds and "data.fold" in grid.values:
        raise UsageError(f"--grid data.fold and --folds {folds}: both choose the test part; leave one of them out.")
    found = []
    for number, values in enumerate(grid.points(), 1):
        parts = [[f"data.fold=[{part}, {folds}]"] for part in range(folds)] if folds else [[]]
        name = f"point-{number}" if epochs is None else f"point-{number}-epochs-{epochs}"
        names = [f"{name}-fold-{part}" for part in range(folds)] if folds else [name]
        short = [] if epochs is None else [f"epochs={epochs}"]
        try:
            configs = [read([*pairs(values), *part, *short]) for part in parts]
        except ConfigError as error:
            raise ConfigError(f"point {number} ({told(values)}): {error}") from error
        found.append(
            Point(
                number, values, [one.model_copy(update={"run": name}) for one, name in zip(configs, names, strict=True)]
            )
        )
    return found


def _unfinished(points: list[Point], folder: SearchFolder, fresh: bool = False) -> list[Config]:
    """The runs that are left to do, of a search that may have begun; all of them where it begins `fresh`."""
    configs = [config for point in points for config in point.configs]
    return [config for config in configs if fresh or measured(folder.run(str(config.run))) is None]


def _refuse_too_many(configs: list[Config], cores: int, yes: bool) -> None:
    """Asks, as `paceline run` does, before the most processes that there would be at a time."""
    if not configs:
        return
    largest = max(configs, key=lambda config: config.workers + config.server_processes)
    at_a_time = max(1, cores // (largest.workers + largest.servers))
    refuse_too_many(largest, yes, runs=min(len(configs), at_a_time))


class _Going:
    """One go at a search."""

    def __init__(
        self, folder: SearchFolder, points: list[Point], cores: int, device: str, console: Console, by: Measure | None
    ) -> None:
        self._folder = folder
        self._points = points
        self._cores = cores
        self._device = device
        self._console = console
        self._by = by
        numbers = {point.number for point in points}
        self._names = {
            str(config.run): f"{point.number} of {len(numbers)} ({told(point.values)})"
            + (f", fold {config.data.fold[0]}" if len(point.configs) > 1 and config.data.fold else "")
            for point in points
            for config in point.configs
        }
        self._failures: dict[str, str] = {}
        """By the run's name, why it failed."""
        self._entered: set[str] = set()
        """Names of the runs that were finished, or to be done."""
        self._code = 0
        self.is_stopped = False
        """By Ctrl-C or SIGTERM."""

    def run(self, engine: str, points: list[Point]) -> int:
        """Makes the shards that runs need, then the runs; or trains in this process. The exit code."""
        todo = _unfinished(points, self._folder)
        names = [str(config.run) for point in points for config in point.configs]
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
            stopped = run_jobs([self._job(config) for config in ready], self._cores, self._ended, self._started)
        self.is_stopped = stopped is not None
        return self._code if stopped is None else stopped

    def _train_here(self, todo: list[Config]) -> int:
        for config in todo:
            name = str(config.run)
            folder = self._folder.run(name)
            try:
                points_in_process.train_point(config, folder)
            except PacelineError as error:
                self._failed(name, error.exit_code, str(error))
            except KeyboardInterrupt:
                self.is_stopped = True
                return 130
            else:
                self._told(name, folder)
        return self._code

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

    def halved(self, rows: list[Row], points: list[Point], count: int) -> list[int]:
        """Says which points go on, the best first, to the round of these points. Their numbers."""
        results = Results(rows, by=self._by)
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
        arguments = ["-m", "paceline.search.point", "--folder", str(folder.path), "--device", self._device]
        return Job(folder.name, arguments, folder.log("point"), config.workers + config.servers)

    def _started(self, job: Job) -> None:
        show(self._console, f"point {self._names[job.name]}: started")

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
        wanted = [f"test_{self._by.name}"] if self._by else []
        name = next((name for name in (*wanted, ACCURACY, LOSS) if name in found.metrics), None)
        score = f"{name.replace('_', ' ')} {found.metrics[name]:.4f}" if name else "not scored"
        spent = f"{found.epochs:.1f} epochs, {found.seconds:.1f} s"
        show(self._console, f"point {self._names[run]}: {score}, {spent}")

    def _failed(self, name: str, code: int, why: str) -> None:
        self._failures[name] = why
        self._code = self._code or (code if code > 0 else PacelineError.exit_code)
        logs = self._folder.run(name).path / "logs"
        show(self._console, f"point {self._names[name]} failed: {why}\n    See {logs}.")


def _reason(folder: RunFolder, job: Job) -> str:
    """Why the run failed: what its launcher noted, otherwise what it said last."""
    facts = folder.facts()
    noted = facts.get("reason") if facts.get("exit_code") else None
    return str(noted or f"it {job.child.how_it_ended()} and said:{job.child.tail()}")


def _write(folder: SearchFolder, grid: Grid, results: Results, console: Console) -> None:
    plain = json.dumps(results.plain(), indent=1) + "\n"
    for name, text in (("md", results.markdown()), ("csv", results.csv()), ("json", plain)):
        folder.write(folder.path / f"results.{name}", "the results", text.encode())
    if not is_installed("matplotlib"):
        show(console, f"No picture. {lacks('matplotlib', 'It')}")
        return
    from paceline.search.pictures import draw

    is_whole = results.full is None and grid.drawn is None
    picture = draw(grid, results) if is_whole else None
    if picture is not None:
        folder.write(folder.path / PICTURE, "the picture", picture)


def _last(results: Results, path: Path, code: int) -> str:
    files = ", ".join(sorted(file.name for file in path.glob("results.*")))
    ending = f"{path}: {files}"
    if code:
        ending += f". Not all points have a result; this runs the missing ones: the same command with --out {path}"
    best = results.best
    if best is None:
        return f"no point has a score. {ending}"
    return f"{ending}\nbest: point {best.number} ({told(best.values)}), {results.measure.replace('_', ' ')} " + (
        f"{best.mean(results.measure):.4f}"
    )

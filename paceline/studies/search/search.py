"""`paceline search`: every point of a grid as a run, several at a time, and a table of what they gave."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from paceline.base.extras import is_installed, lacks
from paceline.base.lasting_console import LastingConsole
from paceline.base.terminal import show
from paceline.core.errors import ConfigError, UsageError
from paceline.core.rules.check_rules import refuse
from paceline.core.rules.rules_of_settings import LOCAL, SEARCH
from paceline.core.run.best_model import Measure
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import new_name
from paceline.launch.this_machine.capacity import refuse_too_many
from paceline.launch.this_machine.cpu_cores import own_cores
from paceline.studies.search import tpe
from paceline.studies.search.going import Going, unfinished
from paceline.studies.search.grid import Grid, told
from paceline.studies.search.halving import budgets, kept
from paceline.studies.search.points import Point, point_of, points_of
from paceline.studies.search.results import Results, measure_by
from paceline.studies.search.search_folder import SEARCHES, SearchFolder, content_of, open_search
from paceline.tasks.missing_data import refuse_missing_data

PICTURE, PAGE = "results.png", "results.html"
ENGINES = ("runs", "local")
"""What trains the points: real runs, or this process (linear models only)."""


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
    console, measure = LastingConsole(stderr=as_json, highlight=False), None if by is None else measure_by(by)
    rounds = _rounds(grid, read, folds, halving)
    points, first = [point for one in rounds for point in one], rounds[-1][0].configs[0]
    what: dict[str, Any] = {"grid": grid.listed, "folds": folds, "settings": first.model_dump(mode="json")}
    what |= content_of(config for point in points for config in point.configs)
    if halving:
        what["halving"] = halving
    if grid.guided is not None:
        what["sample"] = {"tpe": grid.guided.seed}
    elif grid.drawn is not None:
        what["points"] = list(grid.drawn)
    if engine == "local":
        for point in points:
            for config in point.configs:
                refuse(config, {SEARCH: engine})
                refuse(config, {LOCAL: config})
        what["engine"] = engine
    path = out or SEARCHES / new_name(first, SEARCHES)
    cores = cores or len(own_cores())
    count = grid.guided.points if grid.guided else len(rounds[0])
    for config in {each.data.path: each for each in unfinished(points, SearchFolder(path), fresh)}.values():
        refuse_missing_data(config)
    if engine != "local":
        refuse_too_many_runs(unfinished(points, SearchFolder(path), fresh or grid.guided is not None), cores, yes)
    with open_search(SearchFolder(path), what, fresh) as folder:
        runs = f"{count} points" + (f" with {folds} folds each" if folds else "")
        show(console, f"search in {folder.path}: {runs}; {first.task}, {' x '.join(grid.values)}")
        with Going(folder, count, cores, device, console, measure) as going:
            if grid.guided is None:
                code = _run_rounds(going, grid, rounds, engine, halving)
            else:
                batch = 1 if engine == "local" else max(1, _at_a_time(points[0].configs[0], cores) // (folds or 1))
                code, rounds = _run_guided(going, grid, folder, read, folds, engine, batch, measure)
        size = grid.size if grid.drawn is not None else None
        size = size or (len(rounds[0]) if halving else None)
        results = Results(going.rows(grid, rounds), folds, measure, size)
        results.check()
        _write(folder, grid, results, first, console)
    if as_json:
        print(json.dumps({"folder": str(path), "exit_code": code, **results.plain()}))
    else:
        console.print(results.table(f"{first.task}, {first.policy.name}"))
        for line in (*filter(None, [results.how_chosen, results.cost]), *results.warnings()):
            show(console, line)
        show(console, _last(results, path, code))
    return code


def _rounds(
    grid: Grid, read: Callable[[Sequence[str]], Config], folds: int | None, halving: int | None
) -> list[list[Point]]:
    """The points as each round trains them, the last round in full; without halving there is one round. Of a guided search
    a few points, for their settings."""
    if grid.guided is not None:
        if halving:
            raise UsageError(
                f"--sample tpe and --halving {halving}: tpe learns from points that were trained in full, and halving needs "
                "all points at its start. Leave one of them out, or use --sample random."
            )
        return [points_of(replace(grid, drawn=tuple(grid.ends())), read, folds)]
    points = points_of(grid, read, folds)
    if not halving:
        return [points]
    if "epochs" in grid.values:
        raise UsageError(f"--grid epochs and --halving {halving}: both choose the epochs; leave one of them out.")
    *short, _ = budgets(points[0].configs[0].epochs, len(points), halving)
    return [*(points_of(grid, read, folds, epochs) for epochs in short), points]


def _run_rounds(going: Going, grid: Grid, rounds: list[list[Point]], engine: str, halving: int | None) -> int:
    """Each round with the best points of the one before. The exit code."""
    code, numbers = 0, [point.number for point in rounds[0]]
    for number, points in enumerate(rounds):
        code = going.run(engine, [point for point in points if point.number in numbers])
        if going.is_stopped or halving is None or number + 1 == len(rounds):
            break
        count = kept(len(points), halving, number + 1)
        numbers = going.halved(going.rows(grid, rounds), rounds[number + 1], count)
    return code


def _run_guided(
    going: Going,
    grid: Grid,
    folder: SearchFolder,
    read: Callable[[Sequence[str]], Config],
    folds: int | None,
    engine: str,
    size: int,
    by: Measure | None,
) -> tuple[int, list[list[Point]]]:
    """Batches of this size, each chosen by what those before gave. The exit code, and the points as one round."""
    assert grid.guided is not None
    guided = grid.guided
    values = folder.chosen()
    points = [point_of(number, each, read, folds) for number, each in enumerate(values, 1)]
    code = going.run(engine, points) if points else 0

    def allowed(each: dict[str, Any]) -> bool:
        try:
            point_of(len(points), each, read, folds)
        except ConfigError:
            return False
        return True

    while not going.is_stopped and len(points) < guided.points:
        results = Results(going.rows(grid, [points]), folds, by)
        results.check()
        known = list(zip(values, results.losses, strict=True))
        batch = tpe.chosen(grid, guided.seed, known, min(size, guided.points - len(points)), allowed)
        if not batch:
            going.say(
                f"--points {guided.points}: there are only {len(points)} different points whose settings fit together"
            )
            break
        values += batch
        folder.write_chosen(values)
        new = [point_of(number, each, read, folds) for number, each in enumerate(batch, len(points) + 1)]
        points += new
        code = going.run(engine, new)
    return code, [points]


def refuse_too_many_runs(configs: list[Config], cores: int, yes: bool) -> None:
    """Asks, as `paceline run` does, before the most processes that there would be at a time."""
    if not configs:
        return
    largest = max(configs, key=lambda config: config.workers + config.server_processes)
    refuse_too_many(largest, yes, runs=min(len(configs), _at_a_time(largest, cores)))


def _at_a_time(config: Config, cores: int) -> int:
    return max(1, cores // (config.workers + config.servers))


def _write(folder: SearchFolder, grid: Grid, results: Results, config: Config, console: Console) -> None:
    plain = json.dumps(results.plain(), indent=1) + "\n"
    for name, text in (("md", results.markdown()), ("csv", results.csv()), ("json", plain)):
        folder.write(folder.path / f"results.{name}", "the results", text.encode())
    if not is_installed("matplotlib"):
        show(console, f"No picture and no page. {lacks('matplotlib', 'They')}")
        return
    from paceline.studies.search.page import page_of
    from paceline.studies.search.pictures import draw

    is_whole = results.full is None and grid.drawn is None
    picture = draw(grid, results) if is_whole else None
    if picture is not None:
        folder.write(folder.path / PICTURE, "the picture", picture.png)
    page = page_of(folder, results, config, picture)
    folder.write(folder.path / PAGE, "the page", page.encode())


def _last(results: Results, path: Path, code: int) -> str:
    files = ", ".join(sorted(file.name for file in path.glob("results.*")))
    ending = f"{path}: {files}"
    if code:
        ending += f". Not all points have a result; this runs the missing ones: the same command with --out {path}"
    best = results.best
    if best is None:
        return f"no point has a score. {ending}"
    score, test = best.mean(results.measure), best.mean(results.tested)
    tested = f", {results.tested.replace('_', ' ')} {test:.4f}" if results.split != "test" and test is not None else ""
    return f"{ending}\nbest: point {best.number} ({told(best.values)}), {results.measure.replace('_', ' ')} {score:.4f}{tested}"

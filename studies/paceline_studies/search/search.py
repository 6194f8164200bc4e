"""`paceline search`: every point of a grid as a run, several at a time, and a table of what they gave."""

import json
from pathlib import Path

from paceline.base.extras import is_installed, lacks
from paceline.base.lasting_console import LastingConsole
from paceline.base.terminal import show
from paceline.core.setting_rules.check_rules import refuse
from paceline.core.setting_rules.rules_of_settings import LOCAL, SEARCH
from paceline.launch.folder.run_folder import new_name
from paceline.launch.this_machine.processors import own_cores
from paceline.tasks.data_path import refuse_missing_data
from paceline_studies.search.folder import SEARCHES, SearchFolder, opened
from paceline_studies.search.point import train_point
from paceline_studies.search.results import Results
from paceline_studies.search.scheduler import Scheduler, refuse_too_many_runs
from paceline_studies.search.study import Plan, Study


def search(
    plan: Plan,
    out: Path | None = None,
    fresh: bool = False,
    *,
    cores: int | None = None,
    device: str = "auto",
    yes: bool = False,
    as_json: bool = False,
) -> int:
    """Runs what is not finished yet and shows the results. `cores`: for all runs together; `yes`: start even what this machine
    is too small for. Returns 0, the exit code of the first run that failed (the others go on), or of a Ctrl-C. ConfigError
    before anything is started where a point's settings are wrong, or the folder holds another search."""
    values, is_local = plan.values(), plan.engine == "local"
    first = plan.point(1, values[0], None).configs[0]
    rounds = plan.rounds(first.epochs)
    points = [plan.point(number, each, epochs) for epochs in rounds for number, each in enumerate(values, 1)]
    configs = [config for point in points for config in point.configs]
    for config in configs if is_local else ():
        refuse(config, {SEARCH: plan.engine})
        refuse(config, {LOCAL: config})
    folder = SearchFolder(out or SEARCHES / new_name(first, SEARCHES))
    todo, cores = configs if fresh or plan.sample else folder.unfinished(configs), cores or len(own_cores())
    for config in {each.data.path: each for each in todo}.values():
        refuse_missing_data(config)
    if not is_local:
        refuse_too_many_runs(todo, cores, yes)

    console = LastingConsole(stderr=as_json, highlight=False)
    with opened(folder, fresh):
        study = Study(folder, plan, rounds, plan.about(first, configs))
        runs = f"{plan.count} points" + (f" with {plan.folds} folds each" if plan.folds else "")
        show(console, f"search in {folder.path}: {runs}; {first.task}, {' x '.join(plan.grid.values)}")
        if study.finished:
            show(console, f"{study.finished} of {plan.count} points are finished already; --fresh starts them over.")
        here = train_point if is_local else None
        scheduler = Scheduler(folder, plan.count, console, cores=cores, device=device, by=plan.by, here=here)
        code = scheduler.run(study.points(values), study.ended)
        rows = study.rows()
        if not scheduler.is_stopped and len(rows) < plan.count:
            show(
                console,
                f"--points {plan.count}: there are only {len(rows)} different points whose settings fit together",
            )
        results = Results(rows, plan.folds, plan.by)
        results.check()
        _write(folder, study, plan, results, console)
    if as_json:
        print(json.dumps({"folder": str(folder.path), "exit_code": code, **results.plain()}))
        return code
    console.print(results.table(f"{first.task}, {first.policy.name}"))
    files = ", ".join(sorted(file.name for file in folder.path.glob("results.*")))
    again = f". Not all points have a result; this runs the missing ones: the same command with --out {folder.path}"
    for line in (*results.notes, f"{folder.path}: {files}{again if code else ''}", results.conclusion):
        show(console, line)
    return code


def _write(folder: SearchFolder, study: Study, plan: Plan, results: Results, console: LastingConsole) -> None:
    plain = json.dumps(results.plain(), indent=1) + "\n"
    for name, content in (("md", results.markdown()), ("csv", results.csv()), ("json", plain)):
        folder.write(f"results.{name}", content.encode())
    if not is_installed("matplotlib"):
        show(console, f"No picture and no page. {lacks('matplotlib', 'They')}")
        return
    from paceline_studies.search.page import draw, page_of

    slices = draw(study.optuna, plan.grid, results)
    if slices is not None:
        folder.write("results.png", slices.png)
    folder.write("results.html", page_of(folder.path.name, results, slices).encode())

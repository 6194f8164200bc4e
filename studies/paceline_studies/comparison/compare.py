"""Compares finished runs: what is refused, what is shown, and what is written to the comparison's folder."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from paceline.base.terminal import show
from paceline.core.chief.best_model import Measure
from paceline.core.errors import UsageError
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.series import find_series
from paceline_studies.comparison.comparable import measure_of_all, refuse_strangers, split_of_all
from paceline_studies.comparison.comparison import Comparison
from paceline_studies.comparison.finished import read_runs
from paceline_studies.comparison.sides import Side, figures_of, sides_by, sides_of
from paceline_studies.comparison.tables import for_terminal, tables
from paceline_studies.comparison.written import refuse_other_folder, write
from paceline_studies.search.results import measure_by

PLACE = Path("compare")
"""Under the working folder; each comparison that was given no other folder has one in it."""


def compare_runs(names: Sequence[str], by: str | None, out: Path | None, as_json: bool) -> int:
    """Compares runs of ./runs, each by its name, its series' name, or its path. UsageError, DataError or ConfigError where they
    can't be compared. The exit code."""
    folders = [folder for name in names for folder in find_series(name)]
    if len(folders) < 2:
        got = f"one run, {folders[0].name}" if folders else "no run"
        todo = "Name two or more, or a task and --policies, like: paceline compare digits --policies bsp,ssp:3"
        raise UsageError(f"compare got {got}. {todo}")
    found = compared(folders, None if by is None else measure_by(by))
    folder = out or PLACE / _called(found.sides)
    refuse_other_folder(folder)
    show_comparison(found, folder, as_json)
    return 0


def compared(
    folders: Sequence[RunFolder], by: Measure | None, names: Mapping[RunFolder, str] | None = None
) -> Comparison:
    """The runs in these folders. `names`: the policy of each; None: runs that differ in their seed alone are one.
    Errors as above."""
    runs = read_runs(folders)
    refuse_strangers(runs)
    measure = measure_of_all(runs, by)
    split = split_of_all(runs, measure)
    sides = sides_of(runs) if names is None else sides_by(runs, lambda run: names[run.folder])
    return Comparison(sides, figures_of(runs, measure, split), measure, split, names is not None)


def show_comparison(found: Comparison, folder: Path, as_json: bool) -> None:
    """Writes it, and shows it to people or as one JSON object."""
    console = Console(stderr=as_json, highlight=False)
    files = write(found, folder, console)
    if as_json:
        print(json.dumps({"folder": str(folder), **found.plain()}))
        return
    for table in tables(found):
        console.print(for_terminal(table))
    show(console, found.conclusion)
    show(console, f"{folder}: {', '.join(files)}")


def _called(sides: Sequence[Side]) -> str:
    """The folder's name: of what is compared."""
    names = [re.sub(r"[^\w.]+", "-", side.name).strip("-") for side in sides]
    more = f"-and-{len(names) - 2}-more" if len(names) > 2 else ""
    return "-".join(names[:2]) + more

"""`paceline run --repeats 5`: the same training with several seeds, and how far their results lie apart."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Column, Table

from paceline.base.lasting_console import LastingConsole
from paceline.base.terminal import show
from paceline.cli.run import finish
from paceline.core.chief.best_model import by_split, scores_of
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.series import series
from paceline.launch.forks.begin_early import Begun
from paceline.launch.forks.run_forkers import forking
from paceline.launch.status.chief_status import standing

PARTS = ("train", "validation", "test")


def repeat(
    config: Config, times: int, fresh: bool, as_json: bool, device: str = "auto", begun: Begun | None = None
) -> int:
    """Runs NAME-1 to NAME-`times` with seeds that count up, one after the other; finished ones are not repeated. Returns 0,
    or the exit code of one that gave up, or of the first one that fails; the rest are then left, and the same command goes on
    with them."""
    console = LastingConsole(stderr=as_json, highlight=False)
    folders: list[RunFolder] = []
    code = 0
    with forking(config, begun) as forkers:
        for one in series(config, times):
            folder, outcome = finish(one, fresh, console, device, forkers)
            code = outcome.exit_code or code
            if not outcome.is_finished:
                logs = "" if outcome.refused else f" See {folder.path}/logs."
                show(console, f"{folder.name}: {outcome.reason}{logs}")
                break
            show(console, f"{folder.name}: {score_line(folder)}")
            for line in standing(outcome.warnings):
                show(console, line)
            folders.append(folder)
    found = summary([folder.final_metrics() for folder in folders])
    if as_json:
        runs = [{"run": folder.name, "folder": str(folder.path), **folder.final_metrics()} for folder in folders]
        print(json.dumps({"exit_code": code, "runs": runs, "summary": found}))
    else:
        console.print(table(found, len(folders)))
    return code


def score_line(folder: RunFolder) -> str:
    """The final scores in one line."""
    return by_split(folder.final_metrics(), folder.facts().get("scored", {})) or "not scored"


def summary(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Mean and variance of each final score; the sample variance (n - 1), None for a single run."""
    found = {}
    together = {name: 0.0 for metrics in runs for name in metrics}
    for name in (f"{part}_{what}" for part in PARTS for what in scores_of(together, part)):
        values = [metrics[name] for metrics in runs if name in metrics]
        variance = statistics.variance(values) if len(values) > 1 else None
        found[name] = {"mean": statistics.fmean(values), "variance": variance, "runs": len(values)}
    return found


def table(found: Mapping[str, Mapping[str, Any]], runs: int) -> Table:
    """One row for each part of the data and what was measured on it."""
    columns = (Column(name, justify="right", no_wrap=True) for name in ("mean", "variance", "runs"))
    shown = Table("final", *columns, title=f"{runs} runs", caption="variance of the sample (n - 1)")
    for name, values in found.items():
        variance = "-" if values["variance"] is None else f"{values['variance']:.3g}"
        shown.add_row(name.replace("_", " "), f"{values['mean']:.4f}", variance, str(values["runs"]))
    return shown

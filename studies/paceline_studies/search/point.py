"""One run of a search, in its folder. `python -m paceline_studies.search.point` makes it of real processes; `train_point`
trains it in this process, as `paceline local` does: no servers, no shards, and the data is read once for all."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.core.chief.scoring import Score
from paceline.core.settings.config import Config, TableConfig
from paceline.data.dataset import Dataset
from paceline.launch.folder.run_folder import RunFolder
from paceline.processes.exits import exits, run_command
from paceline.settings.load_settings import load


def main(
    folder: Annotated[Path, typer.Option(help="Folder of the run, with its config and a link to its shards.")],
    device: Annotated[str, typer.Option(help="What to compute on: auto, cpu, cuda, cuda:1.")] = "auto",
) -> None:
    """Trains, and exits as `paceline run` does."""
    with exits("point"):
        from paceline.launch.supervise.launcher import run_local

        place = RunFolder(folder)
        outcome = run_local(load(place.config), folder, shards=place.shards.resolve(), device=device, keep=True)
        print(outcome.reason, flush=True)
        sys.exit(outcome.exit_code)


def train_point(config: Config, folder: RunFolder) -> None:
    """Trains, and leaves in the run's folder what a run leaves there: its model, its scores and how it ended. Errors as for
    `paceline local`."""
    from paceline.launch.linear_without_servers import train_here

    began = time.time()
    report = train_here(config, 1, False, folder.models, _data(config))
    score = Score(len(report.epochs), report.seconds, [], report.metrics, True)
    keep_point(folder, [score], "trained in the search's own process", began=began, train_examples=report.examples)


def keep_point(
    folder: RunFolder,
    scores: Sequence[Score],
    reason: str,
    *,
    began: float,
    train_examples: int,
    examples: int | None = None,
    workers: Sequence[Mapping[str, Any]] = (),
    simulated: bool = False,
) -> None:
    """Leaves in the run's folder its scores and how it ended. `scores`: the last one is the final one; `began`: the time of
    day; `examples`: that all workers have trained; `workers`: their figures; `simulated`: its seconds are virtual ones."""
    last = scores[-1]
    status: dict[str, Any] = {"phase": "finished", "epoch": float(last.epoch), "seconds": last.seconds}
    status |= {"examples": examples, "workers": list(workers), "scores": [asdict(score) for score in scores]}
    folder.metrics.write_text(json.dumps(status) + "\n")
    folder.write_facts(
        finished=True,
        exit_code=0,
        accuracy=last.metrics.get("test_accuracy"),
        metrics=last.metrics,
        measure=last.measure,
        seconds=last.seconds,
        train_examples=train_examples,
        simulated=simulated,
        reason=reason,
        started=began,
        pids={},
    )


def _data(config: Config) -> Dataset:
    return _read(config.task, config.model, config.svm.positive, config.data.table, config.data.path)


@lru_cache(maxsize=1)
def _read(task: str, model: str | None, positive: str | None, table: TableConfig, path: str) -> Dataset:
    from paceline.launch.linear_without_servers import read_data

    return read_data(task, model, positive, table, path)


if __name__ == "__main__":
    run_command(main)

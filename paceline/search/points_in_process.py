"""Points of a search that are trained in this process, as `paceline local` does: no servers, no shards, the data read once."""

import json
import time
from functools import lru_cache

from paceline.core.settings.config import Config, TableConfig
from paceline.data.dataset import Dataset
from paceline.local.linear_without_servers import read_data, train_here
from paceline.local.run_folder import RunFolder


def train_point(config: Config, folder: RunFolder) -> None:
    """Trains, and leaves in the run's folder what a run leaves there: its model, its scores and how it ended. Errors as for
    `paceline local`."""
    began = time.time()
    report = train_here(config, 1, False, folder.models, _data(config))
    score = {
        "epoch": len(report.epochs),
        "seconds": report.seconds,
        "versions": [],
        "metrics": report.metrics,
        "final": True,
        "measure": "",
        "examples": {},
    }
    status = {"phase": "finished", "epoch": float(len(report.epochs)), "seconds": report.seconds, "scores": [score]}
    folder.metrics.write_text(json.dumps(status) + "\n")
    folder.write_facts(
        finished=True,
        exit_code=0,
        accuracy=report.metrics.get("test_accuracy"),
        metrics=report.metrics,
        measure="",
        seconds=report.seconds,
        train_examples=report.examples,
        reason="trained in the search's own process",
        started=began,
        pids={},
    )


def _data(config: Config) -> Dataset:
    return _read(config.task, config.model, config.svm.positive, config.data.table, config.data.path)


@lru_cache(maxsize=1)
def _read(task: str, model: str | None, positive: str | None, table: TableConfig, path: str) -> Dataset:
    return read_data(task, model, positive, table, path)

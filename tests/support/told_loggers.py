"""A short run as loggers hear it: two workers, two scores, a warning, and one value that the script logs."""

from pathlib import Path
from typing import Any

from paceline.callback import Callback, End, RunBegin, RunEnd, RunWarning, Score, Status, WorkerState

SETTINGS: dict[str, bool | int | float | str] = {
    "optimizer.name": "sgd",
    "optimizer.lr": 0.1,
    "compile": False,
    "workers": 2,
    "data.weights": "[1, 2]",
    **{f"filler.{number:03}": number for number in range(200)},
}
"""More than fit into one call of MLflow's."""


def begin(folder: Path, is_resumed: bool = False) -> RunBegin:
    return RunBegin("digits-ssp", folder, SETTINGS, is_resumed)


def status(version: int) -> Status:
    workers = tuple(
        WorkerState(
            f"worker-{rank}", version, 0, "compute", True, {"loss": rank + 0.5, "lr": 0.1}, {"norm": 2.0 + rank}
        )
        for rank in range(2)
    )
    return Status("training", version, version / 10, 8 * version, 1.0, 640.0, "ssp", workers)


def tell(logger: Callback, folder: Path, how: End = End.FINISHED, first: int = 0, **more: Any) -> None:
    """A whole run, from the version `first` on."""
    model = folder / "last.safetensors"
    model.write_bytes(b"weights")
    logger.begun(begin(folder, bool(first)))
    for version in (first + 1, first + 2):
        logger.status(status(version))
    for epoch in range(2):
        logger.scored(Score(first + epoch, 1.0, [first + epoch], {"test_accuracy": 0.5 + epoch / 4, "train_loss": 1.0}))
    logger.warned(RunWarning("loss_above_start", "the loss is 9", "optimizer.lr=0.01", [], 1.0))
    end = {"reason": "the budget is spent", "seconds": 2.0, "version": first + 2, "metrics": {"test_accuracy": 0.75}}
    code = 0 if how is End.FINISHED else 130
    logger.ended(RunEnd(**{"how": how, "exit_code": code, "warnings": (), "model": model, **end, **more}))

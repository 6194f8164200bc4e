"""What [Hogwild]'s Tables I and II have in common: the preset's SVM on made-up rows of RCV1's size, by one worker in lock-step,
until the paper's rule stops it. The real RCV1 may not be handed on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paceline.base.private import make_private
from paceline.data.rcv1 import TOPICS
from paceline.launch.linear_without_servers import train_here
from paceline.tasks.builtin import rcv1
from paceline_papers.rcv1_like import TRAIN_ROWS, rcv1_like, write_lyrl2004
from paceline_papers.reproduce.real_runs import config_of
from paceline_papers.reproduce.recipe import Around, Figures, Full

SMALL = "23,149 made-up rows like RCV1's, one worker in lock-step, at most 100 epochs. This is the paper's size."
NEEDS = f"RCV1: {rcv1.WHERE} with --data."
RATE, BATCH = 0.005, 16
"""The paper's best."""


def trained(around: Around, lr: float, batch: int, seed: int) -> Figures:
    """Test accuracy (percent), and epochs until the rule stopped it. At full size on the data given."""
    data = around.data or str(rows_like_rcv1(around.folder / f"rcv1-{seed}", seed))
    settings = {"task": "rcv1", "workers": 1, "optimizer.lr": lr, "batch_size": batch, "seed": seed}
    config = config_of(replace(around, data=data), "one-worker", "hogwild", settings)
    report = train_here(config, 1, False, around.folder / "model")
    return {"accuracy": 100 * report.metrics["test_accuracy"], "epochs": len(report.epochs)}


def full_of(run: Callable[[Around, str, int], Figures]) -> Full:
    """The full size of a table: the same runs on the real RCV1. Each takes seconds, so one that is ended starts over."""
    return Full("RCV1's 23,149 training rows, one worker in lock-step, at most 100 epochs.", NEEDS, run)


def rows_like_rcv1(folder: Path, seed: int, count: int = TRAIN_ROWS) -> Path:
    """As many rows to train on as to test on, in the form of RCV1's authors, made once."""
    if not (folder / TOPICS).is_file():
        make_private(folder)
        write_lyrl2004(rcv1_like(count, count, seed=seed), folder)
    return folder

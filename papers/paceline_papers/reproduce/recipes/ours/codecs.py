"""What each codec costs in accuracy: what docs/choose/codecs.md says of them. Real servers and workers, in lock-step."""

from math import inf
from typing import Any

from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.claims import Above, Apart
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.processes import run as run_processes
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

NONE, RARE, RANDOM, BARE = "none", "push topk, a thousandth", "push randomk", "push topk, no error feedback"
DGC = "push topk, a thousandth, momentum .9"
THOUSANDTH = {"name": "topk", "share": 0.001}
CODECS: dict[str, dict[str, Any]] = {
    NONE: {"push": "none"},
    "push and pull fp16": {"push": "fp16", "pull": "fp16"},
    "push and pull bf16": {"push": "bf16", "pull": "bf16"},
    "push int8": {"push": "int8"},
    "push and pull int8": {"push": "int8", "pull": "int8"},
    "push sign": {"push": "sign"},
    "push topk": {"push": "topk"},
    BARE: {"push": "topk", "error_feedback": False},
    RARE: {"push": THOUSANDTH},
    DGC: {"push": THOUSANDTH, "momentum": 0.9},
    f"{DGC}, no warm-up": {"push": THOUSANDTH, "momentum": 0.9, "warmup_epochs": 0},
    "push threshold": {"push": "threshold"},
    "push threshold, quantised": {"push": {"name": "threshold", "form": "quantised"}},
    RANDOM: {"push": "randomk"},
    "push powersgd, rank 4": {"push": "powersgd"},
    "push powersgd, rank 1": {"push": {"name": "powersgd", "rank": 1}},
}
WORSE = (BARE, RARE, DGC, f"{DGC}, no warm-up", RANDOM)
RATE, MOMENTUM = 0.1, 0.9
"""Of the optimizer without momentum; a codec's own momentum makes ten steps of one, so the rate is a tenth there."""
AS_GOOD = 0.01
"""Accuracy that a codec may cost and be called free."""


def config_of(codec: dict[str, Any], seed: int = 0, workers: int = 4, epochs: int = 10) -> Config:
    """The settings of one run of the digits."""
    lr = RATE * (1 - codec.get("momentum", 0.0))
    return load_config(
        overrides={
            "task": "digits",
            "batch_size": 32,
            "epochs": epochs,
            "optimizer": {"name": "sgd", "lr": lr, "momentum": 0.0},
            "policy": {"name": "bsp"},
            "workers": workers,
            "servers": 2,
            "codec": codec,
            "seed": seed,
        }
    )


def run(around: Around, name: str, seed: int) -> Figures:
    return {"accuracy": run_processes(config_of(CODECS[name], seed)).outcome.metrics["test_accuracy"]}


def draw(runs: Runs) -> Figure:
    return spreads({"test accuracy": {row: runs.of(row, "accuracy") for row in CODECS}})


RECIPE = Recipe(
    number="Codecs",
    shows="accuracy by codec",
    small="The digits, mini-batch 32, SGD .1, 4 workers in lock-step, 2 servers, 10 epochs, as real processes.",
    rows=list(CODECS),
    columns={"accuracy": Column("test accuracy")},
    run=run,
    draw=draw,
    claims=[
        *(
            Apart(
                f"{codec}: at most a point below none",
                {
                    Verdict.AGREES: "What a push leaves out is small, or is sent with the next ones.",
                    Verdict.CANNOT: "The mean is near none's, and the seeds differ by a point.",
                },
                "accuracy",
                codec,
                NONE,
                low=-AS_GOOD,
                high=inf,
            )
            for codec in CODECS
            if codec not in (NONE, *WORSE)
        ),
        *(
            Above(
                f"{codec}: below none",
                {
                    Verdict.AGREES: "Most of each gradient comes late, or is lost.",
                    Verdict.CANNOT: "The mean is below, and the seeds differ as much.",
                },
                "accuracy",
                NONE,
                codec,
            )
            for codec in WORSE
        ),
    ],
    minutes=6,
    seeds=3,
)

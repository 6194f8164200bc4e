"""[Hogwild] Fig. 2: loss against epochs, synchronous. "the validation loss converges to a constant value in a smooth manner and
the training loss tends to zero" (III-C). The paper does not say with how many workers."""

from math import inf

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Between, Fits, RunFigures
from paceline_papers.reproduce.hogwild_races import FULL, SMALL, raced, row
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Column, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

WORKERS = 6
ROW = row("synchronous", WORKERS)
SMOOTH = 0.01
"""What is called smooth: from one epoch to the next the loss rises by no more."""
NEAR_ZERO = 0.05
"""What is called a loss near zero; it begins at 1."""

FALLS = {Verdict.AGREES: "It falls in every epoch; the rule ends the run before it could rise."}
ENDS = {Verdict.DOES_NOT: "The rule ends the run at .15, while the loss still falls; 2 % of the labels are noise."}


def curves(runs: Runs, name: str, title: str) -> Figure:
    """Training and validation loss by epoch, up to the last one that all seeds made."""
    losses = {which: list(zip(*runs.of(name, which), strict=False)) for which in ("training", "validation")}
    return lines(
        {title: losses}, range(1, len(losses["training"]) + 1), "epochs", "loss, mean over the workers", marks=False
    )


def draw(runs: Runs) -> Figure:
    return curves(runs, ROW, ROW)


def rise(found: RunFigures) -> list[float]:
    """The largest one of the validation loss, by seed."""
    return found.of(ROW, "rise")


RECIPE = Recipe(
    number="Fig. 2",
    shows="loss by epoch, synchronous",
    small=SMALL,
    rows=[ROW],
    columns={
        "epochs": Column("epochs", ".1f"),
        "last_training": Column("training loss at the end"),
        "last_validation": Column("validation loss at the end"),
        "rise": Column("largest rise of the validation loss"),
    },
    run=raced,
    draw=draw,
    claims=[
        Fits("the validation loss falls smoothly", FALLS, rise, -inf, SMOOTH),
        Between("the training loss tends to zero", ENDS, "last_training", ROW, -inf, NEAR_ZERO, 0.0),
    ],
    full=FULL,
    minutes=1,
    seeds=3,
    same_runs_as="hogwild/fig-1",
)

"""[Sharding] Fig. 7: how many examples of each class the 12 shards of three random shardings of CIFAR-100 have, by its 20
coarse labels. It needs labels alone: 50,000, 2,500 of each class. Section IV-D2 says what the paper reads off the figure."""

from math import inf

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from paceline.base.plot_style import STYLE
from paceline.core.settings.config import Options
from paceline.data.dataset import Labelled, Selection
from paceline.sharder.strategy import build_strategy, deal
from paceline_papers.reproduce.claims import Between, Fits, RunFigures
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

CLASSES, EACH, WORKERS = 20, 2500, 12
PLAIN = {Verdict.AGREES: "2,500 examples of a class are dealt to 12 shards: 208.3 each."}
WHY = {
    Verdict.CANNOT: "The paper rounds to what its three box plots show; ours is the mean over 20 runs.",
    Verdict.DOES_NOT: "The deviation of a count is 13.5, so the quartiles are 9 away from 208.",
}
MOST = {Verdict.CANNOT: "235 is two deviations of a count above its mean, so half of the shards have one beyond it."}
LEAST, LARGEST = 175, 235
"""What most workers have of each class in the paper's third run; in its second it is 180 to 230."""
ROWS = {"random": {"name": "random"}, "stratified": {"name": "stratified"}}


def counts(strategy: str, seed: int) -> npt.NDArray[np.int64]:
    """Examples of each class in each shard: (12, 20)."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(CLASSES), EACH))
    train = Selection(Labelled(labels[:, None].astype(np.uint8), labels), np.arange(len(labels)))
    options = dict(ROWS[strategy])
    found = deal(build_strategy(Options(**options)), train, [1.0] * WORKERS, seed)
    return np.array([np.bincount(labels[rows], minlength=CLASSES) for rows in found.shards])


def run(around: Around, name: str, seed: int) -> Figures:
    found = counts(name, seed)
    lower, middle, upper = np.percentile(found, (25, 50, 75), axis=1)
    return {
        "median": float(middle.mean()),
        "lower": float(lower.mean()),
        "upper": float(upper.mean()),
        "least": int(found.min()),
        "most": int(found.max()),
        "counts": found.tolist(),
    }


def within(found: RunFigures) -> list[float]:
    """The share of shards with LEAST to LARGEST examples of every class, by seed."""
    counts = (np.atleast_2d(each) for each in found.of("random", "counts"))
    return [float(((each >= LEAST) & (each <= LARGEST)).all(axis=1).mean()) for each in counts]


def draw(runs: Runs) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.6, 3.8), layout="constrained")
        every = runs.of("random", "counts")[:3]
        for number, (axes, found) in enumerate(zip(figure.subplots(1, 3, sharey=True), every, strict=False)):
            axes.boxplot(found, widths=0.6)
            axes.set_title(f"run {number + 1}")
            axes.set_xlabel("worker")
        figure.axes[0].set_ylabel("examples of a class in a shard")
        return figure


RECIPE = Recipe(
    number="Fig. 7",
    shows="examples of each class in random shards of CIFAR-100",
    small="The sharder's own strategies on 50,000 labels of 20 equal classes, 12 shards. This is the paper's size.",
    rows=list(ROWS),
    columns={
        "median": Column("median of a shard", ".1f"),
        "lower": Column("lower quartile", ".1f"),
        "upper": Column("upper quartile", ".1f"),
        "least": Column("fewest", ".0f"),
        "most": Column("most", ".0f"),
    },
    run=run,
    draw=draw,
    claims=[
        Between("a shard has about 208 examples of each class", PLAIN, "median", "random", 207, 209, 208),
        Between(
            "half of a shard's classes have 200 to 215 examples: lower quartile",
            WHY,
            "lower",
            "random",
            199.5,
            200.5,
            200,
        ),
        Between(
            "half of a shard's classes have 200 to 215 examples: upper quartile",
            WHY,
            "upper",
            "random",
            214.5,
            215.5,
            215,
        ),
        Fits(f"most shards have {LEAST} to {LARGEST} examples of each class: share of them", MOST, within, 0.5, inf),
    ],
    minutes=0.1,
    seeds=20,
)

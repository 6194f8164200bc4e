"""[Sharding] Fig. 8: how long it takes to make the shards, by strategy. The text has the numbers: under a second for stratified
and round robin, about 100 s for distribution-aware (section IV-F)."""

import time
from math import inf
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from paceline.base.plot_style import STYLE, colour_of
from paceline.core.settings.config import Options
from paceline.data.dataset import Labelled, Selection
from paceline.sharder.strategy import build_strategy, deal
from paceline_papers.reproduce.claims import Above, Between
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

ROWS: dict[str, dict[str, Any]] = {
    "round robin": {"name": "round_robin"},
    "random": {"name": "random"},
    "stratified": {"name": "stratified"},
    "distribution-aware": {"name": "distribution_aware"},
    "distribution-aware, literal": {"name": "distribution_aware", "literal": True},
}
QUICK = {Verdict.AGREES: "Dealing in turn touches no image."}
LONGER = {Verdict.AGREES: "PCA and KMeans look at every image."}
WHY = {
    Verdict.DOES_NOT: "Newer processors and libraries do the same work in less time.",
    Verdict.CANNOT: "The seconds differ too much from run to run on a machine that is shared.",
}
WORKERS, CLASSES, IMAGES, PIXELS = 12, 10, 50_000, 3072


def run(around: Around, name: str, seed: int) -> Figures:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, IMAGES)
    features = np.memmap(around.folder / "images", np.uint8, "w+", shape=(IMAGES, PIXELS))
    centres = rng.integers(40, 216, (CLASSES, PIXELS))
    for start in range(0, IMAGES, 5_000):
        part = labels[start : start + 5_000]
        features[start : start + 5_000] = np.clip(centres[part] + rng.normal(0, 40, (len(part), PIXELS)), 0, 255)
    train = Selection(Labelled(features, labels), np.arange(IMAGES))
    strategy = build_strategy(Options(**ROWS[name]))
    began = time.perf_counter()
    deal(strategy, train, [1.0] * WORKERS, seed)
    return {"seconds": time.perf_counter() - began}


def draw(runs: Runs) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        axes = figure.subplots()
        means = [float(np.mean(runs.of(row, "seconds"))) for row in ROWS]
        axes.barh(list(ROWS), means, color=colour_of(0))
        axes.set_xscale("log")
        axes.set_xlabel("seconds to deal 50,000 images to 12 shards")
        axes.invert_yaxis()
        return figure


RECIPE = Recipe(
    number="Fig. 8",
    shows="seconds to make the shards, by strategy",
    small="50,000 made-up images of CIFAR-10's form, which is the paper's size; dealing alone, without writing files.",
    rows=list(ROWS),
    columns={"seconds": Column("seconds", ".2g")},
    run=run,
    draw=draw,
    paper={"distribution-aware, literal": {"seconds": 100.0}},
    claims=[
        *(
            Between(f"{name} takes less than a second", QUICK, "seconds", name, -inf, 1.0, 1.0)
            for name in ("round robin", "stratified")
        ),
        Above("distribution-aware takes longer than stratified", LONGER, "seconds", "distribution-aware", "stratified"),
        Between(
            "distribution-aware takes about 100 seconds", WHY, "seconds", "distribution-aware, literal", 95.0, 105.0
        ),
    ],
    minutes=11,
)

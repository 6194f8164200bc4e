"""[Sharding] Table III: neighbourhoods with fewer examples than workers, which go to every worker, and the validation accuracy
of these runs. Many of them "appear to slightly harm the validation accuracy" (section IV-C2)."""

from math import inf
from statistics import mean

import numpy as np
from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Between, Fits, RunFigures, Trend, slope
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.recipe import Column, Recipe, Runs
from paceline_papers.reproduce.recipes.sharding import table_2
from paceline_papers.reproduce.rule import Verdict

ROWS = {f"distribution-aware, {k}": k for k in (20, 30, 40)}
ACCURACY = "validation_accuracy"
COLUMNS = {
    "sparse": Column("sparse neighbourhoods", ".1f"),
    "size": Column("their mean size", ".2f"),
    ACCURACY: Column("validation accuracy"),
}
THREE_RUNS: dict[str, list[tuple[float, ...]]] = {
    "distribution-aware, 20": [(2, 1, 0.9352), (1, 1, 0.9345), (3, 1, 0.9361)],
    "distribution-aware, 30": [(6, 2.83, 0.9351), (6, 1.17, 0.9361), (4, 1.25, 0.9364)],
    "distribution-aware, 40": [(7, 1.57, 0.9370), (8, 1, 0.9345), (11, 1.56, 0.9330)],
}
"""The paper's, in the order of the columns."""

COUNTS = {
    Verdict.DOES_NOT: "The digits are another data set; how many images stand alone is a matter of the data.",
    Verdict.AGREES: "A quarter of the clusters have so few images, as in the paper's runs.",
    Verdict.CANNOT: "The mean is in the paper's range, but its interval is not.",
}
GROWS = {Verdict.AGREES: "More clusters over the same images leave fewer images to each."}
HARMS = {Verdict.CANNOT: "Seeds move the accuracy more than a few examples that all workers have."}


def sparse(found: RunFigures, name: str) -> list[float]:
    """How many there were, by seed."""
    return found.of(name, "sparse")


def slopes(found: RunFigures) -> list[float]:
    """By seed: how the accuracy moves with the number of sparse neighbourhoods, over the rows."""
    counts, accuracies = (np.array([found.of(name, figure) for name in ROWS]) for figure in ("sparse", ACCURACY))
    return [slope(*each) for each in zip(counts.T, accuracies.T, strict=True)]


def draw(runs: Runs) -> Figure:
    return spreads({COLUMNS[name].name: {row: runs.of(row, name) for row in ROWS} for name in COLUMNS})


RECIPE = Recipe(
    number="Table III",
    shows="sparse neighbourhoods, and the validation accuracy with them",
    small=table_2.RECIPE.small,
    rows=list(ROWS),
    columns=COLUMNS,
    run=table_2.RECIPE.run,
    draw=draw,
    paper={
        row: dict(zip(COLUMNS, map(mean, zip(*runs, strict=True)), strict=True)) for row, runs in THREE_RUNS.items()
    },
    claims=[
        *(
            Between(
                f"{row}: there are {min(counts):g} to {max(counts):g} sparse neighbourhoods",
                COUNTS,
                "sparse",
                row,
                min(counts),
                max(counts),
                mean(counts),
            )
            for row, runs in THREE_RUNS.items()
            for counts in [[run[0] for run in runs]]
        ),
        Trend("with more clusters more of them are sparse", GROWS, list(ROWS), list(ROWS.values()), sparse, 1),
        Fits("the more of them, the lower the validation accuracy", HARMS, slopes, -inf, 0.0),
    ],
    minutes=table_2.RECIPE.minutes,
    side_by_side=True,
    seeds=table_2.RECIPE.seeds,
    same_runs_as="sharding/table-2",
    full=table_2.RECIPE.full,
    version=table_2.RECIPE.version,
)

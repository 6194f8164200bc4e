"""[Survey] MLlib: accuracy of decision tree, logistic regression and naive Bayes on two tables. The paper's text says PPV, its
table accuracy; both are here."""

from matplotlib.figure import Figure

from paceline_papers.baseline.mllib import missing_spark
from paceline_papers.reproduce.claims import Above, Between
from paceline_papers.reproduce.mllib_runs import CALLED, EXECUTORS, EXPERIMENTS, SMALL, row, trained
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.recipe import Column, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

ROWS = {row(experiment, EXECUTORS[-1]): experiment for experiment in EXPERIMENTS}
MODELS = ("tree", "lr", "bayes")
PERCENT = {1: (87, 87, 56), 2: (73, 69, 52)}
"""The paper's, by experiment, in the order of `MODELS`."""

VALUES = {
    Verdict.AGREES: "Most rows have the first class, which nearly every answer is.",
    Verdict.DOES_NOT: "The rows are made up, and their signal is another one.",
    Verdict.CANNOT: "The mean is near the paper's, but the seeds differ by more than its rounding.",
}
ABOVE_BAYES = {
    Verdict.AGREES: "The features are indexes, which naive Bayes takes for how often something occurs.",
}
TREE_ABOVE = {
    Verdict.AGREES: "We put into these rows what two columns say together, which a linear model can't learn.",
    Verdict.CANNOT: "The seeds differ by more than the two models do.",
    Verdict.DOES_NOT: "What these rows say adds up over the columns, which a linear model learns and a small tree does not.",
}


def above(better: str, other: str, name: str, why: dict[Verdict, str]) -> Above:
    says = f"{name}: {CALLED[better]} is above {CALLED[other]}"
    return Above(says, why, f"{better}_accuracy", name, name, f"{other}_accuracy")


def draw(runs: Runs) -> Figure:
    return spreads({CALLED[kind]: {name: runs.of(name, f"{kind}_accuracy") for name in ROWS} for kind in MODELS})


RECIPE = Recipe(
    number="MLlib, table",
    shows="accuracy of three of MLlib's models on two tables",
    small=SMALL,
    rows=list(ROWS),
    columns={f"{kind}_accuracy": Column(f"{CALLED[kind]} (%)", ".2f") for kind in MODELS}
    | {f"{kind}_ppv": Column(f"its PPV, weighted: {CALLED[kind]} (%)", ".2f") for kind in MODELS},
    run=trained,
    draw=draw,
    paper={
        name: {f"{kind}_accuracy": float(value) for kind, value in zip(MODELS, PERCENT[experiment], strict=True)}
        for name, experiment in ROWS.items()
    },
    claims=[
        *(
            Between(f"{name}: {CALLED[kind]} has {value} %", VALUES, f"{kind}_accuracy", name, value - 0.5, value + 0.5)
            for name, experiment in ROWS.items()
            for kind, value in zip(MODELS, PERCENT[experiment], strict=True)
        ),
        *(above(kind, "bayes", name, ABOVE_BAYES) for name in ROWS for kind in ("tree", "lr")),
        above("tree", "lr", row(2, EXECUTORS[-1]), TREE_ABOVE),
    ],
    minutes=18,
    seeds=4,
    lacks=missing_spark,
)

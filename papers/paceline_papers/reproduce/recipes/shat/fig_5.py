"""[SHAT] Fig. 5: accuracy by training time of SHAT in four clusters: all workers equal (HO), or one of them 2, 10 or 100 times
slower (HE0, HE1, HE2). The paper has no numbers in its text; it says that the rate of convergence is consistent, with a small
loss because of the slow worker (section 4.3)."""

from itertools import product
from math import inf, nan

from matplotlib.figure import Figure

from paceline_papers.reproduce import shat_on_cifar
from paceline_papers.reproduce.claims import Fits, RunFigures
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Full, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.shat_on_digits import AS_SMALL, EPOCHS, METHODS, MODELS, config_of, problem
from paceline_studies.simulator.training import Curve, curve_of

CLUSTERS = {"HO": "", "HE0": "2x", "HE1": "10x", "HE2": "100x"}
WORKERS = 8
REACHED = 0.9
"""Accuracy that the time is taken to."""
MOST_LOSS = 0.05
"""What is called a small loss: that of one of eight workers costs at most an eighth of the speed, and this much."""

WHY = {
    Verdict.CANNOT: "The time to an accuracy differs too much from seed to seed to tell a loss of a fifth.",
    Verdict.AGREES: "Nobody waits for the slow worker, and its few stale gradients do little harm.",
}


def row(model: str, cluster: str) -> str:
    return f"{model}, {cluster}"


ROWS = {row(model, cluster): (model, cluster) for model, cluster in product(MODELS, CLUSTERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    model, cluster = ROWS[name]
    config = config_of(METHODS["SHAT"], WORKERS, seed, MODELS[model], CLUSTERS[cluster])
    return curve_figures(curve_of(config, problem(around, config)), EPOCHS)


def run_full(around: Around, name: str, seed: int) -> Figures:
    model, cluster = ROWS[name]
    slow = CLUSTERS[cluster]
    result = shat_on_cifar.run_of(around, model, "SHAT", METHODS["SHAT"], WORKERS, seed, slow)
    return curve_figures(shat_on_cifar.curve_of(result))


def curve_figures(found: Curve, epochs: int | None = None) -> Figures:
    """Of a cluster's curve, which is cut after this many epochs."""
    return {
        "time": found.time_to(REACHED),
        "last": found.scores[-1],
        "times": found.times[:epochs],
        "scores": found.scores[:epochs],
    }


def draw(runs: Runs) -> Figure:
    panels = {
        model: {cluster: list(zip(*runs.of(row(model, cluster), "scores"), strict=False)) for cluster in CLUSTERS}
        for model in MODELS
    }
    places = {
        model: {
            cluster: [sum(times) / len(times) for times in zip(*runs.of(row(model, cluster), "times"), strict=False)]
            for cluster in CLUSTERS
        }
        for model in MODELS
    }
    unit = "s" if runs.is_full else "steps of an equal worker"
    return lines(panels, places, f"time ({unit})", "test accuracy", marks=False)


def slower(model: str, cluster: str, found: RunFigures) -> list[float]:
    """How many times as long it takes as with equal workers, by seed: infinitely where it never gets there, NaN where equal
    ones don't."""
    pairs = zip(found.of(row(model, cluster), "time"), found.of(row(model, "HO"), "time"), strict=True)
    return [time / theirs if theirs < inf else nan for time, theirs in pairs]


RECIPE = Recipe(
    number="Fig. 5",
    shows="accuracy by time of SHAT with one slow worker",
    small=f"The digits with a deep and a wide network, 8 workers, 30 epochs, in virtual time. {AS_SMALL}",
    rows=list(ROWS),
    columns={
        "time": Column(f"time to accuracy {REACHED:g}", ".0f"),
        "last": Column("accuracy at the end"),
    },
    run=run,
    draw=draw,
    claims=[
        Fits(
            f"{model}, {cluster}: as fast as HO but for a small loss: times as long",
            WHY,
            lambda found, model=model, cluster=cluster: slower(model, cluster, found),  # type: ignore[misc]
            -inf,
            WORKERS / (WORKERS - 1) * (1 + MOST_LOSS),
        )
        for model, cluster in product(MODELS, ("HE0", "HE1", "HE2"))
    ],
    minutes=1,
    seeds=20,
    side_by_side=True,
    full=Full(shat_on_cifar.TRAINS.format("ResNet-50 and VGG-16"), shat_on_cifar.NEEDS, run_full),
)

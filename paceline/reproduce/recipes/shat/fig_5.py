"""[SHAT] Fig. 5: accuracy by training time of SHAT in four clusters: all workers equal (HO), or one of them 2, 10 or 100 times
slower (HE0, HE1, HE2). The paper has no numbers in its text; it says that the rate of convergence is consistent, with a small
loss because of the slow worker (section 4.3)."""

from itertools import product
from math import inf

from matplotlib.figure import Figure

from paceline.reproduce import shat_on_cifar
from paceline.reproduce.claims import Between
from paceline.reproduce.pictures import lines
from paceline.reproduce.recipe import Around, Column, Figures, Full, Recipe, Runs
from paceline.reproduce.rule import Verdict
from paceline.reproduce.shat_on_digits import EPOCHS, METHODS, MODELS, config_of, problem
from paceline.simulator.training import Curve, curve_of

CLUSTERS = {"HO": "", "HE0": "2x", "HE1": "10x", "HE2": "100x"}
WORKERS = 8
REACHED = 0.9
"""Accuracy that the time is taken to."""
MOST_LOSS = 0.05
"""What is called a consistent rate: the loss of one of eight workers costs at most an eighth of the speed, and this much."""

WHY = {
    Verdict.CANNOT: "The mean is near HO's, but the time to an accuracy differs too much from seed to seed.",
    Verdict.AGREES: "Nobody waits for the slow worker, and its few stale gradients do little harm.",
}


def row(model: str, cluster: str) -> str:
    return f"{model}, {cluster}"


ROWS = {row(model, cluster): (model, cluster) for model, cluster in product(MODELS, CLUSTERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    model, cluster = ROWS[name]

    def curve(slow: str) -> Curve:
        config = config_of(METHODS["SHAT"], WORKERS, seed, MODELS[model], slow)
        return curve_of(config, problem(around, config))

    found, equal = curve(CLUSTERS[cluster]), curve("")
    return told(found, equal, EPOCHS)


def run_full(around: Around, name: str, seed: int) -> Figures:
    model, cluster = ROWS[name]

    def curve(slow: str) -> Curve:
        result = shat_on_cifar.run_of(around, model, "SHAT", METHODS["SHAT"], WORKERS, seed, slow)
        return shat_on_cifar.curve_of(result)

    return told(curve(CLUSTERS[cluster]), curve(""))


def told(found: Curve, equal: Curve, epochs: int | None = None) -> Figures:
    """Of a cluster's curve, compared with that of equal workers; the curve is cut after this many epochs."""
    time, theirs = found.time_to(REACHED), equal.time_to(REACHED)
    return {
        "time": time,
        "ratio": time / theirs if theirs < inf else inf,
        "last": found.scores[-1],
        "times": found.times[:epochs],
        "scores": found.scores[:epochs],
    }


def draw(runs: Runs) -> Figure:
    panels = {
        model: {
            cluster: list(zip(*(scores for scores in runs.of(row(model, cluster), "scores")), strict=True))
            for cluster in CLUSTERS
        }
        for model in MODELS
    }
    places = {
        model: {
            cluster: [sum(times) / len(times) for times in zip(*runs.of(row(model, cluster), "times"), strict=True)]
            for cluster in CLUSTERS
        }
        for model in MODELS
    }
    unit = "s" if runs.is_full else "steps of an equal worker"
    return lines(panels, places, f"time ({unit})", "test accuracy", marks=False)


RECIPE = Recipe(
    number="Fig. 5",
    shows="accuracy by time of SHAT with one slow worker",
    small="The digits with a deep and a wide network, 8 workers, 30 epochs, in virtual time.",
    rows=list(ROWS),
    columns={
        "time": Column(f"time to accuracy {REACHED:g}", ".0f"),
        "ratio": Column("against HO", ".3f"),
        "last": Column("accuracy at the end"),
    },
    run=run,
    draw=draw,
    claims=[
        Between(
            f"{model}, {cluster}: as fast as HO but for a small loss",
            WHY,
            "ratio",
            row(model, cluster),
            1 / (1 + MOST_LOSS),
            WORKERS / (WORKERS - 1) * (1 + MOST_LOSS),
            1.0,
        )
        for model, cluster in product(MODELS, ("HE0", "HE1", "HE2"))
    ],
    minutes=4,
    seeds=20,
    side_by_side=True,
    full=Full(shat_on_cifar.TRAINS.format("ResNet-50 and VGG-16"), shat_on_cifar.NEEDS, run_full),
)

"""[SHAT] Table 2: final test accuracy of ENSEMBLE, ASP, SHAT-Root and SHAT, by model and number of workers; and of SHAT under
each reading of its equation 4, whose operators the printed text has lost (papers/docs/shat.md)."""

from collections.abc import Callable
from itertools import product
from math import log2

from matplotlib.figure import Figure

from paceline_papers.reproduce import shat_on_cifar
from paceline_papers.reproduce.claims import Above, RunFigures, Trend
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Full, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.shat_on_digits import AS_SMALL, METHODS, MODELS, config_of, problem
from paceline_studies.simulator.training import train

WORKERS = (2, 4, 8, 16)
PAPER = {
    "ResNet-50": {
        "ENSEMBLE": (0.9319, 0.9112, 0.8910, 0.8491),
        "ASP": (0.9332, 0.9315, 0.9182, 0.9019),
        "SHAT-Root": (0.9384, 0.9329, 0.9293, 0.9113),
        "SHAT": (0.9399, 0.9382, 0.9311, 0.9311),
    },
    "VGG-16": {
        "ENSEMBLE": (0.9012, 0.8821, 0.8247, 0.7002),
        "ASP": (0.9209, 0.9171, 0.9071, 0.8687),
        "SHAT-Root": (0.9242, 0.9223, 0.9128, 0.9081),
        "SHAT": (0.9238, 0.9228, 0.9226, 0.9209),
    },
}
READINGS = {
    f"{method}, {reading}": {"name": name, "reading": reading, "alpha_min": 0.0}
    for (method, name), reading in product((("SHAT-Root", "shat_root"), ("SHAT", "shat")), ("difference", "reciprocal"))
}
"""As well as the default, which is called complement."""
WHY = {
    "ASP": {Verdict.CANNOT: "On a task this small both end as high, but for seeds that diverge."},
    "SHAT-Root": {
        Verdict.CANNOT: "Both read most of the global model, so they differ less than two seeds do.",
        Verdict.NO_EFFECT: "Both read most of the global model, and end with the same accuracy in each seed.",
    },
    "ENSEMBLE": {
        Verdict.AGREES: "A worker that never reads the global model pushes gradients that belong to another model.",
        Verdict.CANNOT: "The difference has the paper's sign, but the seeds differ as much.",
    },
}
"""By the method that SHAT is compared with."""
LEAD = {Verdict.CANNOT: "There is no lead with few workers; with 16 the deep network's seeds that diverge decide."}
EVERY = {**METHODS, **READINGS}


def row(method: str, workers: int) -> str:
    return f"{method}, n = {workers}"


ROWS = {row(method, workers): (method, workers) for method, workers in product(EVERY, WORKERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    method, workers = ROWS[name]
    found = {}
    for paper, model in MODELS.items():
        config = config_of(EVERY[method], workers, seed, model)
        trained = problem(around, config)
        found[paper] = trained.measures(train(config, trained).model)["test_accuracy"]
    return found


def run_full(around: Around, name: str, seed: int) -> Figures:
    method, workers = ROWS[name]
    runs = {model: shat_on_cifar.run_of(around, model, method, EVERY[method], workers, seed) for model in MODELS}
    return {model: found.metrics["test_accuracy"] for model, found in runs.items()}


def draw(runs: Runs) -> Figure:
    panels = {
        model: {method: [runs.of(row(method, count), model) for count in WORKERS] for method in METHODS}
        for model in MODELS
    }
    return lines(panels, WORKERS, "workers", "test accuracy", log=True)


def gap(model: str) -> Callable[[RunFigures, str], list[float]]:
    """How far SHAT is above ASP, for each seed."""

    def figure(found: RunFigures, name: str) -> list[float]:
        other = row("ASP", ROWS[name][1])
        return [ours - theirs for ours, theirs in zip(found.of(name, model), found.of(other, model), strict=True)]

    return figure


def order(model: str, other: str, workers: int) -> Above:
    """Which of SHAT and another method is above the other in the paper: SHAT, but for VGG-16 with 2 workers."""
    place = WORKERS.index(workers)
    upper, lower = sorted(("SHAT", other), key=lambda method: PAPER[model][method][place], reverse=True)
    says = f"{model}, {workers} workers: {upper} is above {lower}"
    return Above(says, WHY[other], model, row(upper, workers), row(lower, workers))


RECIPE = Recipe(
    number="Table 2",
    shows="accuracy by method, model and number of workers",
    small=f"The digits, with a deep and a wide network instead of ResNet-50 and VGG-16, 30 epochs, in virtual time. {AS_SMALL}",
    rows=list(ROWS),
    columns={model: Column(model) for model in MODELS},
    run=run,
    draw=draw,
    paper={
        row(method, workers): {model: PAPER[model][method][place] for model in MODELS}
        for method, (place, workers) in product(METHODS, enumerate(WORKERS))
    },
    claims=[
        *(order(model, other, count) for model, other, count in product(MODELS, WHY, WORKERS)),
        *(
            Trend(
                f"{model}: SHAT's lead over ASP grows with each doubling of the workers",
                LEAD,
                [row("SHAT", count) for count in WORKERS],
                [log2(count) for count in WORKERS],
                gap(model),
                1,
            )
            for model in MODELS
        ),
    ],
    minutes=2,
    side_by_side=True,
    full=Full(shat_on_cifar.TRAINS.format("ResNet-50 and VGG-16"), shat_on_cifar.NEEDS, run_full),
)

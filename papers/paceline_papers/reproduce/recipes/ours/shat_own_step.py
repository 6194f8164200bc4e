"""What a worker's own step does to SHAT and ENSEMBLE (policy.local_step), with the momentum that [SHAT] trains with. The paper
does not ask this: its equation 2 has no momentum, and its Algorithm 1 no own step (papers/docs/shat.md)."""

from itertools import product

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.shat_on_digits import METHODS, config_of, problem
from paceline_studies.simulator.training import train

WORKERS = (2, 4, 8)
RATE, MOMENTUM, EPOCHS = 0.002, 0.9, 20
EVERY = {
    "ASP": METHODS["ASP"],
    **{f"SHAT, {step}": {**METHODS["SHAT"], "local_step": step} for step in ("plain", "optimizer", "none")},
    **{f"ENSEMBLE, {step}": {**METHODS["ENSEMBLE"], "local_step": step} for step in ("plain", "optimizer")},
}


def row(method: str, workers: int) -> str:
    return f"{method}, n = {workers}"


ROWS = {row(method, workers): (method, workers) for method, workers in product(EVERY, WORKERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    method, workers = ROWS[name]
    config = config_of(EVERY[method], workers, seed, "wide", epochs=EPOCHS, lr=RATE, momentum=MOMENTUM)
    trained = problem(around, config)
    return {"accuracy": trained.measures(train(config, trained).model)["test_accuracy"]}


def draw(runs: Runs) -> Figure:
    panel = {method: [runs.of(row(method, count), "accuracy") for count in WORKERS] for method in EVERY}
    return lines({"own step": panel}, WORKERS, "workers", "test accuracy", log=True)


RECIPE = Recipe(
    number="Own steps",
    shows="accuracy of SHAT and ENSEMBLE by the worker's own step",
    small="The digits with a wide network, momentum .9, 20 epochs, in virtual time.",
    rows=list(ROWS),
    columns={"accuracy": Column("test accuracy")},
    run=run,
    draw=draw,
    claims=[
        Above(
            f"{count} workers: ENSEMBLE needs the optimizer's step where the servers have momentum",
            {
                Verdict.AGREES: "The servers' momentum carries the global model further than plain steps carry the workers."
            },
            "accuracy",
            row("ENSEMBLE, optimizer", count),
            row("ENSEMBLE, plain", count),
        )
        for count in WORKERS
    ],
    minutes=2,
    side_by_side=True,
)

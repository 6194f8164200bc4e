"""Clipping with ASP at the linearly scaled rate: n times that of one worker, as [SHAT] trains. docs/start/own-model.md has
clip.norm against gradients that explode, and a run that diverges asks for it."""

from itertools import product
from math import inf

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Apart
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.shat_on_digits import METHODS, config_of, problem
from paceline_studies.simulator.training import train

NETWORKS = ("wide", "deep")
CLIPS = {"no clipping": {}, "clip.norm 1": {"norm": 1.0}, "clip.quantile .5": {"quantile": 0.5}}
NONE, NORM, QUANTILE = CLIPS
WORKERS = (4, 8, 16)
RATE, MOMENTUM, EPOCHS = 0.002, 0.9, 20
AS_GOOD = 0.01
"""Accuracy that clipping may cost where nothing explodes."""


def row(network: str, clip: str) -> str:
    return f"{network}, {clip}"


ROWS = {row(network, clip): (network, clip) for network, clip in product(NETWORKS, CLIPS)}


def run(around: Around, name: str, seed: int) -> Figures:
    network, clip = ROWS[name]
    found = {}
    for workers in WORKERS:
        config = config_of(
            METHODS["ASP"], workers, seed, network, epochs=EPOCHS, lr=RATE, momentum=MOMENTUM, clip=CLIPS[clip]
        )
        of = problem(around, config)
        found[f"accuracy-{workers}"] = of.measures(train(config, of).model)["test_accuracy"]
    return found


def draw(runs: Runs) -> Figure:
    panels = {
        f"{network} network": {
            clip: [runs.of(row(network, clip), f"accuracy-{count}") for count in WORKERS] for clip in CLIPS
        }
        for network in NETWORKS
    }
    return lines(panels, WORKERS, "workers", "test accuracy", log=True)


def better(network: str, workers: int, other: str, why: str) -> Above:
    return Above(
        f"{network} network, {workers} workers: clip.norm 1 ends above {other}",
        {
            Verdict.AGREES: why,
            Verdict.CANNOT: "Both fail: clipped pushes still step too far with the servers' momentum, then gradients vanish.",
        },
        f"accuracy-{workers}",
        row(network, NORM),
        row(network, other),
    )


def free(network: str, workers: int) -> Apart:
    return Apart(
        f"{network} network, {workers} workers: clip.norm 1 costs at most a point where nothing explodes",
        {
            Verdict.AGREES: "After the first epochs few gradients of this network are longer than 1.",
            Verdict.CANNOT: "It shortens more than half of this network's gradients, and the seeds differ by about a point.",
            Verdict.DOES_NOT: "Most gradients of this network are longer than 1, so that it trains at a lower rate.",
        },
        f"accuracy-{workers}",
        row(network, NORM),
        row(network, NONE),
        low=-AS_GOOD,
        high=inf,
    )


RESCUED = "The stale gradients that grow are held to a length at which the next ones lead back."

RECIPE = Recipe(
    number="Clipping",
    shows="accuracy of ASP at the linearly scaled rate, by clipping",
    small=(
        f"The digits with a deep and a wide network, rate {RATE:g} x n, momentum {MOMENTUM:g} at the servers, {EPOCHS} epochs, "
        "in virtual time."
    ),
    rows=list(ROWS),
    columns={f"accuracy-{count}": Column(f"accuracy, n = {count}") for count in WORKERS},
    run=run,
    draw=draw,
    claims=[
        better("wide", 16, NONE, RESCUED),
        better("deep", 8, NONE, RESCUED),
        better("deep", 16, NONE, RESCUED),
        better("wide", 16, QUANTILE, "The quantile follows the gradients as they grow, and a fixed limit does not."),
        *(free(*case) for case in (("wide", 4), ("wide", 8), ("deep", 4))),
    ],
    minutes=1,
    seeds=8,
    side_by_side=True,
)

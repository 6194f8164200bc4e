"""[SHAT] Fig. 6: speed-up by workers of the model whole on one server, and cut layerwise and memorywise over four. The paper
has no numbers in its text; "for both models, the memorywise parameter sharding improves the training throughput of SHAT the
most", layerwise improves ResNet-50 well, and it "rarely improves" VGG-16, since a few layers have most parameters (4.4)."""

from itertools import product
from math import inf, prod

from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes
from paceline_papers.reproduce.claims import Above, Fits, RunFigures
from paceline_papers.reproduce.exchanges import Load, measure, server_node, worker_node
from paceline_papers.reproduce.layouts import resnet50, vgg16
from paceline_papers.reproduce.network import missing
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

MODELS = {"ResNet-50": resnet50, "VGG-16": vgg16}
CUTS = ("whole", "layerwise", "memorywise")
WORKERS, SERVERS = (1, 2, 4, 8), 4
MOST = WORKERS[-1]
SCALE = 128
"""Each tensor has this part of its values."""
LINK = 10e9 / SCALE
"""Of each process (bit/s): a model travels in the time that the whole one takes on the paper's 10 Gbit/s."""
COMPUTE = 0.25
"""Of a step (seconds). The paper does not say how long its steps take."""
STEPS = 6
"""Of each worker, at least, in a measurement."""


def row(model: str, cut: str, workers: int) -> str:
    return f"{model}, {cut}, n = {workers}"


ROWS = {row(*cell): cell for cell in product(MODELS, CUTS, WORKERS)}


def config_of(cut: str, workers: int) -> Config:
    """SHAT's exchange, without snapshots, which would go to one disk here."""
    own = {
        "task": "exchanges",
        "epochs": 1_000_000,
        "workers": workers,
        "servers": SERVERS,
        "policy": {"name": "shat"},
        "plan": {"slices": cut},
        "optimizer": {"name": "sgd", "lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-4},
        "schedule": {"lr_scale": "none"},
        "checkpoint": {"every": 3600, "retain": 0},
    }
    return Config.model_validate(own)


def shapes_of(model: str) -> Shapes:
    """Its tensors, each with a part of its values."""
    return [(tensor, (max(1, prod(shape) // SCALE),)) for tensor, shape in MODELS[model]()]


def run(around: Around, name: str, seed: int) -> Figures:
    model, cut, workers = ROWS[name]
    nodes = [*map(server_node, range(SERVERS)), *map(worker_node, range(workers))]
    wanted = Load(config_of(cut, workers), shapes_of(model), COMPUTE, seed, STEPS)
    found = measure(wanted, dict.fromkeys(nodes, LINK))
    return {"steps": found.steps, "cores": found.cores}


def draw(runs: Runs) -> Figure:
    panels = {
        model: {
            cut: [ratios(runs, row(model, cut, count), row(model, "whole", 1)) for count in WORKERS] for cut in CUTS
        }
        for model in MODELS
    }
    return lines(panels, WORKERS, "workers", "speed-up")


def ratios(found: RunFigures, upper: str, lower: str) -> list[float]:
    """Of two rows' throughput, by seed."""
    return [a / b for a, b in zip(found.of(upper, "steps"), found.of(lower, "steps"), strict=True)]


def against_whole(model: str, cut: str, found: RunFigures) -> list[float]:
    """With the most workers."""
    return ratios(found, row(model, cut, MOST), row(model, "whole", MOST))


def times(says: str, model: str, cut: str, low: float, high: float, why: str) -> Fits:
    """A claim on the throughput of a cut with the most workers, over that of the model whole."""
    return Fits(says, {Verdict.AGREES: why}, lambda found: against_whole(model, cut, found), low, high)


RECIPE = Recipe(
    number="Fig. 6",
    shows="speed-up by workers and by cut of the model over four servers",
    small=(
        f"Server and worker processes, each behind an emulated link. Tensors have a {SCALE}th of their values and the links a "
        f"{SCALE}th of the paper's 10 Gbit/s: {LINK / 1e6:.0f} Mbit/s. A step computes for {COMPUTE:g} s, as a pause."
    ),
    rows=list(ROWS),
    columns={"steps": Column("steps a second", ".2f"), "cores": Column("cores busy", ".2f")},
    run=run,
    draw=draw,
    claims=[
        *(
            Above(
                f"{model}, {MOST} workers: memorywise has a higher throughput than {cut}",
                {Verdict.AGREES: "Its servers' links carry equal parts, so none of them is full before the others."},
                "steps",
                row(model, "memorywise", MOST),
                row(model, cut, MOST),
            )
            for model, cut in product(MODELS, CUTS[:2])
        ),
        times(
            f"ResNet-50, {MOST} workers: layerwise improves the throughput well (by 1.4 times or more)",
            "ResNet-50",
            "layerwise",
            1.4,
            inf,
            "Its largest slice has .55 of the model, so the fullest link carries about half as much.",
        ),
        times(
            f"VGG-16, {MOST} workers: layerwise rarely improves the throughput (by 1.4 times at most)",
            "VGG-16",
            "layerwise",
            -inf,
            1.4,
            "One layer has .77 of the model, and its server's link is nearly as full as with the model whole.",
        ),
        times(
            f"VGG-16, {MOST} workers: memorywise improves the throughput the most (by 3 times or more)",
            "VGG-16",
            "memorywise",
            3.0,
            inf,
            "Four links carry what one did; the rest is the time in which a worker computes or uses its own link.",
        ),
    ],
    minutes=17,
    seeds=3,
    lacks=missing,
    version=2,
)

"""[Hogwild] Table II: accuracy and epochs by the size of a mini-batch, at rate .005."""

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.rcv1_runs import RATE, SMALL, full_of, trained
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

SIZES = (1, 2, 8, 16, 32)
PAPER = {1: (73, 30), 2: (82, 29), 8: (91, 30), 16: (92.3, 30), 32: (89, 31)}
ROWS = {f"S = {size}": size for size in SIZES}

SAME = {
    Verdict.CANNOT: "Each example moves the weights as far in any mini-batch, since its gradients are summed; all end alike.",
    Verdict.NO_EFFECT: "Each example moves the weights as far in any mini-batch, since its gradients are summed.",
}


def run(around: Around, name: str, seed: int) -> Figures:
    return trained(around, RATE, ROWS[name], seed)


def draw(runs: Runs) -> Figure:
    panels = {
        "accuracy (%)": {
            "ours": [runs.of(row, "accuracy") for row in ROWS],
            "paper": [[PAPER[size][0]] for size in SIZES],
        }
    }
    return lines(panels, SIZES, "examples of a mini-batch", "test accuracy (%)", log=True)


RECIPE = Recipe(
    number="Table II",
    shows="accuracy and epochs by mini-batch",
    small=SMALL,
    rows=list(ROWS),
    columns={"accuracy": Column("accuracy (%)", ".2f"), "epochs": Column("epochs, at most 100", ".1f")},
    run=run,
    draw=draw,
    paper={f"S = {size}": {"accuracy": accuracy, "epochs": count} for size, (accuracy, count) in PAPER.items()},
    claims=[
        Above(f"S = 16 is better than S = {other}", SAME, "accuracy", "S = 16", f"S = {other}")
        for other in SIZES
        if other != 16
    ],
    full=full_of(run),
    minutes=1,
    seeds=3,
    side_by_side=True,
)

"""[Hogwild] Table I: accuracy and epochs by learning rate, at mini-batches of 16."""

from math import log

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Trend
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.rcv1_runs import BATCH, SMALL, full_of, trained
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

RATES = {"rate 0.01": 0.01, "rate 0.005": 0.005, "rate 0.001": 0.001}
PAPER = {"rate 0.01": (90.1, 22), "rate 0.005": (91.9, 29), "rate 0.001": (90.3, 34)}

BEST = {
    Verdict.CANNOT: "The rule's tolerance follows the rate, so both rates train until the same point.",
    Verdict.NO_EFFECT: "The rule's tolerance follows the rate, so both rates end within a sixth of a point of each other.",
    Verdict.DOES_NOT: "The smaller rate trains to the last epoch, and ends a tenth of a point higher.",
}
MORE = {Verdict.AGREES: "Smaller steps change the loss less, and the rule's tolerance shrinks only as fast."}


def run(around: Around, name: str, seed: int) -> Figures:
    return trained(around, RATES[name], BATCH, seed)


def draw(runs: Runs) -> Figure:
    panels = {
        "accuracy (%)": {
            "ours": [runs.of(row, "accuracy") for row in RATES],
            "paper": [[PAPER[row][0]] for row in RATES],
        }
    }
    return lines(panels, list(RATES.values()), "learning rate", "test accuracy (%)", log=True)


RECIPE = Recipe(
    number="Table I",
    shows="accuracy and epochs by learning rate",
    small=SMALL,
    rows=list(RATES),
    columns={"accuracy": Column("accuracy (%)", ".2f"), "epochs": Column("epochs, at most 100", ".1f")},
    run=run,
    draw=draw,
    paper={row: {"accuracy": accuracy, "epochs": count} for row, (accuracy, count) in PAPER.items()},
    claims=[
        *(
            Above(f"rate .005 is better than {other}", BEST, "accuracy", "rate 0.005", other)
            for other in RATES
            if other != "rate 0.005"
        ),
        Trend(
            "a smaller rate takes more epochs",
            MORE,
            list(RATES),
            [log(rate) for rate in RATES.values()],
            lambda found, row: found.of(row, "epochs"),
            -1,
        ),
    ],
    full=full_of(run),
    minutes=1,
    seeds=3,
    side_by_side=True,
)

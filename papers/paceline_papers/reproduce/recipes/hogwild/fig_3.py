"""[Hogwild] Fig. 3: loss against epochs, asynchronous. "we can see the difference in the number needed of epochs to converge,
while each epoch in the asynchronous mode will be faster" (III-C). It does not say which mode needs more; we take it to be the
asynchronous one, since the sentence goes on with what makes up for it."""

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above
from paceline_papers.reproduce.hogwild_races import FULL, SMALL, raced, row
from paceline_papers.reproduce.recipe import Column, Recipe, Runs
from paceline_papers.reproduce.recipes.hogwild.fig_2 import WORKERS, curves
from paceline_papers.reproduce.rule import Verdict

SYNCHRONOUS, ASYNCHRONOUS = row("synchronous", WORKERS), row("asynchronous", WORKERS)

MORE = {
    Verdict.DOES_NOT: "Each worker leaves by its own loss, which meets the rule earlier than the mean of all does.",
    Verdict.CANNOT: "Each worker leaves by its own loss, so the epochs of the last one differ from seed to seed.",
}
SHORTER = {Verdict.AGREES: "No round waits for its slowest worker."}


def draw(runs: Runs) -> Figure:
    return curves(runs, ASYNCHRONOUS, ASYNCHRONOUS)


RECIPE = Recipe(
    number="Fig. 3",
    shows="loss by epoch, asynchronous",
    small=SMALL,
    rows=[SYNCHRONOUS, ASYNCHRONOUS],
    columns={
        "epochs": Column("epochs", ".1f"),
        "epoch": Column("seconds an epoch", ".3f"),
        "last_training": Column("training loss at the end"),
        "last_validation": Column("validation loss at the end"),
    },
    run=raced,
    draw=draw,
    claims=[
        Above("the epochs differ (as we read it, asynchronous takes more)", MORE, "epochs", ASYNCHRONOUS, SYNCHRONOUS),
        Above("an epoch is shorter when asynchronous", SHORTER, "epoch", SYNCHRONOUS, ASYNCHRONOUS),
    ],
    full=FULL,
    minutes=2,
    seeds=3,
    same_runs_as="hogwild/fig-1",
)

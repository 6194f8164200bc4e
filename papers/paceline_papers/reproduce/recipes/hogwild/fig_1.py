"""[Hogwild] Fig. 1: time to convergence against the number of workers. "a speed of convergence approximately 100 sec. faster
for asynchronous", and "Time to convergence improves with the number of workers until 6 workers and stagnate after 6"
(III-B)."""

from math import log2

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Fits, RunFigures, Trend
from paceline_papers.reproduce.hogwild_races import FULL, MODES, ROWS, SMALL, WORKERS, raced, row
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Column, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

BEST = 6
"""Workers from which on the paper's time falls no more."""
STANDSTILL = 0.1
"""What is called stagnation: the time with twice as many workers differs by at most this share."""

FASTER = {
    Verdict.AGREES: "Nobody waits for the slowest worker of a round, and the paper's runs are longer.",
    Verdict.CANNOT: "With two workers a round hardly waits, so the seeds differ by as much as the modes.",
}
FALLS = {Verdict.AGREES: "The workers share the rows, and their pauses run side by side."}
STANDS = {
    Verdict.AGREES: "Each round costs two cores the same work, however many workers share it.",
    Verdict.CANNOT: "The time is about a tenth shorter, and the seeds differ by as much.",
    Verdict.DOES_NOT: "Most of a worker's time here is its pause, so that twice as many take half the time.",
}


def draw(runs: Runs) -> Figure:
    panels = {"": {mode: [runs.of(row(mode, count), "seconds") for count in WORKERS] for mode in MODES}}
    return lines(panels, WORKERS, "workers", "time to the end (s)")


def seconds(found: RunFigures, name: str) -> list[float]:
    """Of one row, by seed."""
    return found.of(name, "seconds")


def against_best(mode: str, found: RunFigures) -> list[float]:
    """The time with the most workers as a share of that with six."""
    pairs = zip(found.of(row(mode, WORKERS[-1]), "seconds"), found.of(row(mode, BEST), "seconds"), strict=True)
    return [most / best for most, best in pairs]


UP_TO_BEST = [count for count in WORKERS if count <= BEST]

RECIPE = Recipe(
    number="Fig. 1",
    shows="time to the end by workers, synchronous and asynchronous",
    small=SMALL,
    rows=list(ROWS),
    columns={
        "seconds": Column("seconds", ".1f"),
        "epochs": Column("epochs", ".1f"),
        "accuracy": Column("accuracy (%)", ".2f"),
    },
    run=raced,
    draw=draw,
    claims=[
        *(
            Above(
                f"{count} workers: asynchronous is faster",
                FASTER,
                "seconds",
                row("synchronous", count),
                row("asynchronous", count),
            )
            for count in WORKERS[1:]
        ),
        *(
            Trend(
                f"{mode}: the time falls up to {BEST} workers",
                FALLS,
                [row(mode, count) for count in UP_TO_BEST],
                [log2(count) for count in UP_TO_BEST],
                seconds,
                -1,
            )
            for mode in MODES
        ),
        *(
            Fits(
                f"{mode}: from {BEST} to {WORKERS[-1]} workers the time stays the same",
                STANDS,
                lambda found, mode=mode: against_best(mode, found),  # type: ignore[misc]
                1 - STANDSTILL,
                1 + STANDSTILL,
            )
            for mode in MODES
        ),
    ],
    full=FULL,
    minutes=14,
    seeds=3,
)

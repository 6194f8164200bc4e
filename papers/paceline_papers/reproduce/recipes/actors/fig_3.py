"""[Actors] Fig. 3: the error against tau from 0.1 to 2. "Increasing tau imposes a linear increase in the mean
squared error"."""

from collections.abc import Callable
from math import inf, nan
from statistics import mean, stdev

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from paceline.base.plot_style import FAINT, INK, STYLE, colour_of, marker_of
from paceline_papers.reproduce.claims import Fits, RunFigures, Trend
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.xor_runs import FORMS, SHOWN, best

TAUS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0)
ROWS = {f"tau = {tau:g}, {form}": (form, tau) for form in SHOWN for tau in TAUS}
GOOD = 0.9
"""R squared from which on a law is called right."""
PUBLISHED = {0.1: {"error": 0.25, "updates": 28866}, 1.0: {"error": 0.29, "updates": 769}}
CENTRALISED = {"error": 0.04, "updates": 18009}

GROWS = {Verdict.AGREES: "What has not been sent when the one epoch ends is never learned."}
LINE = {Verdict.CANNOT: "Three seeds with six values of tau each leave a wide interval around the fit."}


def run(around: Around, name: str, seed: int) -> Figures:
    return best(*ROWS[name], seed)


def against_tau(runs: Runs, figure: str, up: str, log: bool) -> Figure:
    """One figure of all forms against tau, with the paper's points, and a line at what it has with servers."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(6.4, 4.6), layout="constrained")
        axes = drawn.subplots()
        for number, form in enumerate(SHOWN):
            values = [runs.of(f"tau = {tau:g}, {form}", figure) for tau in TAUS]
            spreads = [stdev(each) if len(each) > 1 else 0.0 for each in values]
            axes.errorbar(
                TAUS,
                [mean(each) for each in values],
                spreads,
                marker=marker_of(number),
                color=colour_of(number),
                label=FORMS[form].told,
            )
        known = {tau: numbers[figure] for tau, numbers in PUBLISHED.items()}
        axes.plot(
            list(known),
            list(known.values()),
            "*",
            color=INK,
            markersize=11,
            zorder=3,
            label="[Actors], without servers",
        )
        axes.axhline(CENTRALISED[figure], linestyle=":", color=FAINT, label="[Actors], centralised")
        axes.set_xlabel("tau")
        axes.set_ylabel(up)
        axes.set_yscale("log" if log else "linear")
        drawn.legend(loc="outside upper left", frameon=False, fontsize=9)
        return drawn


def draw(runs: Runs) -> Figure:
    return against_tau(runs, "error", "error", log=False)


def r_squared(form: str, column: str, log: bool = False) -> Callable[[RunFigures], list[float]]:
    """How well a straight line fits the figure (or its logarithm) against tau, for each seed."""

    def figure(found: RunFigures) -> list[float]:
        rows = [found.of(f"tau = {tau:g}, {form}", column) for tau in TAUS]
        return [straight(values, log) for values in zip(*rows, strict=True)]

    return figure


def straight(values: tuple[float, ...], log: bool) -> float:
    """R squared of the straight line over TAUS; NaN where the values don't change, or one is no number."""
    found = np.log(np.maximum(values, 1.0)) if log else np.array(values)
    return float(np.corrcoef(TAUS, found)[0, 1] ** 2) if np.ptp(found) else nan


RECIPE = Recipe(
    number="Fig. 3",
    shows="error against tau",
    small="XOR with 25 data shards of 2,000 examples, in virtual time. This is the paper's size, with fewer values of tau.",
    rows=list(ROWS),
    columns={"error": Column("error", ".3f"), "updates": Column("updates", ",.0f")},
    run=run,
    draw=draw,
    paper={f"tau = {tau:g}, {form}": numbers for form in SHOWN for tau, numbers in PUBLISHED.items()},
    claims=[
        claim
        for form in SHOWN
        for claim in (
            Trend(
                f"{form}: the error grows with tau",
                GROWS,
                [f"tau = {tau:g}, {form}" for tau in TAUS],
                TAUS,
                lambda found, row: found.of(row, "error"),
                1,
            ),
            Fits(f"{form}: it grows in a straight line (R squared)", LINE, r_squared(form, "error"), GOOD, inf),
        )
    ],
    minutes=10,
    seeds=3,
    side_by_side=True,
)

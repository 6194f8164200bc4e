"""[Actors] Fig. 4: parameter updates received against tau. "Increasing tau results in an exponential reduction"."""

from dataclasses import replace
from math import inf

import numpy as np
from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Fits, RunFigures, Trend
from paceline_papers.reproduce.recipe import Runs
from paceline_papers.reproduce.recipes.actors import fig_3
from paceline_papers.reproduce.recipes.actors.fig_3 import GOOD, TAUS, against_tau, r_squared
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.xor_runs import SHOWN

FALLS = {Verdict.AGREES: "A larger sum takes longer to gather, and much of it cancels out."}
LINE = {Verdict.CANNOT: "A power of tau fits as well, and the few updates of large taus differ much from seed to seed."}


def draw(runs: Runs) -> Figure:
    return against_tau(runs, "updates", "parameter values\nreceived by a data shard", log=True)


def log_updates(found: RunFigures, row: str) -> list[float]:
    """Natural logarithms; one update and none are the same."""
    return [float(np.log(max(count, 1.0))) for count in found.of(row, "updates")]


RECIPE = replace(
    fig_3.RECIPE,
    number="Fig. 4",
    shows="parameter updates received against tau",
    draw=draw,
    claims=[
        claim
        for form in SHOWN
        for claim in (
            Trend(
                f"{form}: the logarithm of the updates falls with tau",
                FALLS,
                [f"tau = {tau:g}, {form}" for tau in TAUS],
                TAUS,
                log_updates,
                -1,
            ),
            Fits(
                f"{form}: exponentially, a straight line for the logarithm (R squared)",
                LINE,
                r_squared(form, "updates", log=True),
                GOOD,
                inf,
            ),
        )
    ],
    same_runs_as="actors/fig-3",
    minutes=0,
)

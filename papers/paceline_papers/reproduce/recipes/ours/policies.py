"""Every policy with eight workers, equal ones and with one ten times slower ([SHAT]'s HE1): what a slow worker costs, as
docs/choose/policies.md says. Options that are not a policy's defaults are in its row's name."""

from itertools import product
from math import inf
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from paceline.base.plot_style import STYLE, colour_of, marker_of
from paceline.core.policies.policy import from_shorthand, is_served
from paceline.core.settings.config import Options
from paceline_papers.reproduce.claims import Apart, Fits, RunFigures
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.user_on_digits import AS_GOOD, SMALL, config_of, problem, row
from paceline_studies.simulator.training import training_of

WORKERS = 8
LOCK_STEP = ("bsp", "allreduce", "dpsgd", "sgp")
BOUNDED = ("ssp:3", "dssp")
FREE = (
    "asp",
    "downpour, push_every 4",
    "shat",
    "shat_root",
    "ensemble",
    "kbuffered",
    "everyone",
    "rennala",
    "delay_threshold",
    "staleness_aware",
    "dana",
    "easgd:4",
    "adpsgd",
    "gosgd",
    "broadcast",
)
ROUNDS = ("backup", "local_sgd, dynamic", "diloco, dynamic")
OPTIONS: dict[str, dict[str, Any]] = {
    "downpour, push_every 4": {"name": "downpour", "push_every": 4},
    "local_sgd, dynamic": {"name": "local_sgd", "dynamic": True},
    "diloco, dynamic": {"name": "diloco", "dynamic": True},
}
POLICIES = (*LOCK_STEP, *BOUNDED, *FREE, *ROUNDS)
CLUSTERS = {"HO": "", "HE1": "10x"}
ROWS = {row(policy, cluster): (policy, cluster) for policy, cluster in product(POLICIES, CLUSTERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    policy, cluster = ROWS[name]
    options = OPTIONS.get(policy) or from_shorthand(policy)
    config = config_of(options, WORKERS, seed, int(is_served(Options(**options))), CLUSTERS[cluster])
    of = problem(around, config)
    training = training_of(config, of)
    found = training.run()
    return {
        "accuracy": of.measures(found.model)["test_accuracy"],
        "time": found.time,
        "waiting": training.waited / WORKERS / found.time,
        "staleness": found.staleness,
    }


def draw(runs: Runs) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 0.28 * len(POLICIES) + 1), layout="constrained")
        axes = figure.subplots()
        for number, cluster in enumerate(CLUSTERS):
            means = [mean(runs.of(row(policy, cluster), "time")) for policy in POLICIES]
            axes.plot(means, range(len(POLICIES)), marker_of(number), color=colour_of(number), label=cluster)
        axes.set_yticks(range(len(POLICIES)), POLICIES)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel("time of training (steps of an equal worker)")
        axes.legend(frameon=False)
        return figure


def slower(policy: str, other: str, found: RunFigures, cluster: str = "HE1") -> list[float]:
    """How many times as long one policy takes as another, by seed."""
    times = (found.of(row(name, each), "time") for name, each in ((policy, "HE1"), (other, cluster)))
    return [one / base for one, base in zip(*times, strict=True)]


AS_BSP = {
    Verdict.AGREES: "Rate and momentum are translated, so that a step means what it does in one process.",
    Verdict.CANNOT: "The mean is about a point below, or less, and the seeds differ by as much.",
}
BELOW_BSP = {
    "ensemble": {Verdict.DOES_NOT: "Its gradients are of the workers' own models, which move away from the servers'."},
    "downpour, push_every 4": {Verdict.DOES_NOT: "Sums of four gradients that are many pushes old step too far."},
    "easgd:4": {
        Verdict.DOES_NOT: "The servers' model goes a part of the way to the workers' once in four steps, and lags behind."
    },
    "rennala": {Verdict.CANNOT: "It makes fewer steps than bsp in the same epochs, and this data set gives it few."},
}
"""Why, by policy, where that is another reason."""

RECIPE = Recipe(
    number="All policies",
    shows="accuracy, time, waiting and staleness of every policy with equal workers and with a slow one",
    small=f"{SMALL} {WORKERS} workers.",
    rows=list(ROWS),
    columns={
        "accuracy": Column("accuracy"),
        "time": Column("time", ".0f"),
        "waiting": Column("waiting", ".3f"),
        "staleness": Column("staleness", ".1f"),
    },
    run=run,
    draw=draw,
    claims=[
        *(
            Fits(
                f"{policy}: one worker ten times slower makes it three times as slow or more",
                {Verdict.AGREES: "All go at the slow worker's pace."},
                lambda found, policy=policy: slower(policy, policy, found, "HO"),  # type: ignore[misc]
                3.0,
                inf,
            )
            for policy in LOCK_STEP
        ),
        *(
            Fits(
                f"{policy}: with a worker that is always slow a bound saves at most a fifth of bsp's time",
                {Verdict.AGREES: "The bound is used up once; from then on all wait for the slow one."},
                lambda found, policy=policy: slower(policy, "bsp", found),  # type: ignore[misc]
                0.8,
                1.0,
            )
            for policy in BOUNDED
        ),
        *(
            Fits(
                f"{policy}: with one worker ten times slower it takes at most a quarter of bsp's time",
                {Verdict.AGREES: "The others go on, and make the slow one's part of the steps."},
                lambda found, policy=policy: slower(policy, "bsp", found),  # type: ignore[misc]
                0.0,
                0.25,
            )
            for policy in (*FREE, *ROUNDS)
        ),
        *(
            Apart(
                f"{policy}: with equal workers it ends at most a point below bsp",
                BELOW_BSP.get(policy, AS_BSP),
                "accuracy",
                row(policy, "HO"),
                row("bsp", "HO"),
                low=-AS_GOOD,
                high=inf,
            )
            for policy in POLICIES
            if policy != "bsp"
        ),
    ],
    minutes=2,
    side_by_side=True,
)

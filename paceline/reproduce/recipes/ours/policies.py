"""Every policy with eight workers, equal ones and with one ten times slower ([SHAT]'s HE1): what a slow worker costs, as
docs/choose/policies.md says. Options that are not a policy's defaults are in its row's name."""

from itertools import product
from math import inf
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from paceline.core.settings.config import Options
from paceline.core.sync.policy import from_shorthand, is_served
from paceline.plot_style import STYLE, colour_of, marker_of
from paceline.reproduce.claims import Fits, Found
from paceline.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline.reproduce.rule import Verdict
from paceline.reproduce.user_on_digits import AS_GOOD, SMALL, config_of, problem, row
from paceline.simulator.training import training_of

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
    "dc_asgd",
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
GOOD = ("allreduce", "dpsgd", "sgp", *BOUNDED, "asp", "shat", "kbuffered", "dana", "adpsgd", "broadcast", "backup")
"""What docs/choose/policies.md offers, and what is offered without servers."""
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


def slower(policy: str, other: str, found: Found, cluster: str = "HE1") -> list[float]:
    """How many times as long one policy takes as another, by seed."""
    times = (found.of(row(name, each), "time") for name, each in ((policy, "HE1"), (other, cluster)))
    return [one / base for one, base in zip(*times, strict=True)]


def above_bsp(policy: str, found: Found) -> list[float]:
    """Accuracy above BSP's between equal workers, by seed."""
    columns = (found.of(row(name, "HO"), "accuracy") for name in (policy, "bsp"))
    return [ours - bsp for ours, bsp in zip(*columns, strict=True)]


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
            Fits(
                f"{policy}: with equal workers it ends at most a point below bsp",
                {
                    Verdict.AGREES: "Rate and momentum are translated, so that a step means what it does in one process.",
                    Verdict.CANNOT: "The mean is less than a point below, and the seeds differ by more.",
                },
                lambda found, policy=policy: above_bsp(policy, found),  # type: ignore[misc]
                -AS_GOOD,
                inf,
            )
            for policy in GOOD
        ),
        Fits(
            "ensemble: with equal workers it ends more than a point below bsp",
            {Verdict.AGREES: "Its gradients are of the workers' own models, which move away from the servers'."},
            lambda found: above_bsp("ensemble", found),
            -1.0,
            -AS_GOOD,
        ),
    ],
    minutes=2,
    side_by_side=True,
)

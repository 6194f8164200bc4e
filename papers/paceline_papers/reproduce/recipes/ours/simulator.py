"""How close the simulator comes to real processes: what docs/choose/compare.md says of it. The clusters are [SHAT]'s (section
4.3), and random stragglers. The real workers' steps are pauses, so that two cores carry eight of them."""

from itertools import product
from math import inf
from typing import Any

from matplotlib.figure import Figure

from paceline.core.policies.policy import from_shorthand, is_served
from paceline.core.settings.config import Config, Options
from paceline.tasks.task import load_config
from paceline_papers.reproduce.claims import Fits, RunFigures
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.processes import run as run_processes
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.simulated import real_of, scene_of, simulated_of
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import timed

POLICIES = ("bsp", "ssp:3", "dssp", "asp", "shat", "backup", "kbuffered", "adpsgd")
CLUSTERS = {"HO": "", "HE0": "2x", "HE1": "10x", "random": "10x@5%"}
"""How the last worker is slow, or all of them at random."""
WORKERS = (2, 4, 8)
STEP = 0.08
"""A step's pause (seconds)."""
LASTS = {"HO": 3.0, "HE0": 5.0, "HE1": 8.0, "random": 5.0}
"""About how long each real run trains (seconds): the slowest worker makes a dozen steps at least."""
MOST = 15.0
"""How far the simulator may be from real workers (%)."""
OWN = Scene(step=0.003, link="100Gbit,3ms")
"""What processes take besides the pauses, roughly: it only says how many epochs last that long."""


def row(policy: str, cluster: str, workers: int) -> str:
    return f"{workers} workers, {cluster}: {policy}"


ROWS = {
    row(policy, cluster, workers): (policy, cluster, workers)
    for workers, cluster, policy in product(WORKERS, CLUSTERS, POLICIES)
}


def slow_of(cluster: str, workers: int) -> dict[str, str]:
    """Everybody's pause is a step of 2x less one; the slow one's has as many more as its factor says."""
    how = CLUSTERS[cluster]
    who = map(str, range(workers)) if "@" in how else [str(workers - 1)] if how else []
    return {"all": "2x"} | dict.fromkeys(who, how)


def config_of(policy: str, cluster: str, workers: int, seed: int, epochs: int = 1) -> Config:
    chosen = from_shorthand(policy)
    own: dict[str, Any] = {
        "task": "digits",
        "policy": chosen,
        "workers": workers,
        "servers": int(is_served(Options(**chosen))),
        "slow": slow_of(cluster, workers),
        "nominal_step": STEP,
        "batch": "worker",
        "batch_size": 32,
        "epochs": epochs,
        "evaluate_every": epochs,
        "seed": seed,
    }
    return load_config(overrides=own)


def run(around: Around, name: str, seed: int) -> Figures:
    policy, cluster, workers = ROWS[name]
    config = config_of(policy, cluster, workers, seed)
    problem = problem_of(config, around.folder / f"shards-{workers}-{seed}")
    once = timed(config, OWN, problem.values, problem.examples).seconds
    config = config_of(policy, cluster, workers, seed, max(1, round(LASTS[cluster] / once)))
    processes = run_processes(config).workers
    real = real_of(processes)
    ours = simulated_of(timed(config, scene_of(config, processes), problem.values, problem.examples))
    return {
        "step": 1000 * real.step,
        "simulated-step": 1000 * ours.step,
        "staleness": real.staleness,
        "simulated-staleness": ours.staleness,
        "waited": 1000 * real.waited,
        "simulated-waited": 1000 * ours.waited,
    }


WITHIN = {"step": "time a step", "staleness": "staleness", "waited": "waiting"}
"""What is compared. Differences in waiting are shares of a step's time, and of staleness below a version, of a version."""


def apart(found: RunFigures, policy: str, what: str) -> list[float]:
    """The largest difference over all clusters and numbers of workers, by seed (%)."""
    each = [differences(found, name, what) for name in ROWS if ROWS[name][0] == policy]
    return [max(of_seed) for of_seed in zip(*each, strict=True)]


def differences(found: RunFigures, name: str, what: str) -> list[float]:
    """Of one row, by seed (%)."""
    columns = (found.of(name, column) for column in (what, f"simulated-{what}", "step"))
    return [100 * abs(ours - real) / share(what, real, step) for real, ours, step in zip(*columns, strict=True)]


def share(what: str, real: float, step: float) -> float:
    """What 100 % of a difference are."""
    return {"step": step, "staleness": max(1.0, real), "waited": step}[what]


def draw(runs: Runs) -> Figure:
    panels = {told: {policy: apart(runs, policy, what) for policy in POLICIES} for what, told in WITHIN.items()}
    return spreads({f"{told}: most (%)": panel for told, panel in panels.items()})


RECIPE = Recipe(
    number="Simulator",
    shows="time a step, staleness and waiting of real workers and of the simulator",
    small=f"The digits; a step is a pause of {1000 * STEP:.0f} ms. Up to {max(LASTS.values()):g} s of training as real "
    "processes, two runs at a time, then simulated with the mean times that they took to compute and to exchange.",
    rows=list(ROWS),
    columns={
        "step": Column("step (ms)", ".1f"),
        "simulated-step": Column("simulated", ".1f"),
        "staleness": Column("staleness", ".2f"),
        "simulated-staleness": Column("simulated", ".2f"),
        "waited": Column("waiting (ms)", ".1f"),
        "simulated-waited": Column("simulated", ".1f"),
    },
    run=run,
    draw=draw,
    claims=[
        Fits(
            f"{policy}: {told} within {MOST:g} % of real workers in every cluster, with 2, 4 and 8 of them",
            {
                Verdict.AGREES: "The policy's code is the same, and the scene has the real run's own times.",
                Verdict.CANNOT: "What else this machine does (another such run, say) disturbs real workers in single runs.",
                Verdict.DOES_NOT: "What else this machine does disturbs real workers in ways that means don't have.",
            },
            lambda found, policy=policy, what=what: apart(found, policy, what),  # type: ignore[misc]
            -inf,
            MOST,
        )
        for policy, (what, told) in product(POLICIES, WITHIN.items())
    ],
    side_by_side=True,
    minutes=14,
    seeds=3,
)

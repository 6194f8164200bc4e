"""Who computes when, with one slow worker of four, under three policies: the picture of the README."""

from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.base.plot_style import COLOURS, FAINT, STYLE
from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.claims import Above, Between
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_studies.simulator.problem import Problem, problem_of
from paceline_studies.simulator.servers import Computed
from paceline_studies.simulator.worker import Worker

WORKERS, SLOW = 4, 3
"""How many there are, and which of them is slow (from 0)."""
FACTOR = 5
"""How many times as long as the others it takes."""
UNTIL = 40.0
"""The last moment that is drawn, in steps of an equal worker."""
SAYS = {
    "bsp": "all wait for the slowest at every step",
    "ssp:3": "a worker may be 3 steps ahead of the slowest",
    "shat": "nobody waits",
}
"""What each policy does, for its panel's title."""


class Watched(Computed):
    """A training that notes who computes when."""

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.spans: list[list[tuple[float, float]]] = [[] for _ in range(config.workers)]
        """By worker: when a mini-batch began, and how long it took."""
        self.counted = 0
        self._began = [0.0] * config.workers

    def _begin(self, worker: Worker) -> None:
        self._began[worker.rank] = self.time.now
        super()._begin(worker)

    def _computed(self, worker: Worker, incarnation: int, examples: int) -> None:
        began = self._began[worker.rank]
        self.spans[worker.rank].append((began, self.time.now - began))
        if self.time.now <= UNTIL:
            self.counted += examples
        super()._computed(worker, incarnation, examples)


def run(around: Around, name: str, seed: int) -> Figures:
    own: dict[str, Any] = {
        "task": "digits",
        "policy": from_shorthand(name),
        "workers": WORKERS,
        "servers": 1,
        "slow": {str(SLOW): f"{FACTOR}x"},
        "seed": seed,
    }
    config = load_config(overrides=own)
    watched = Watched(config, problem_of(config, around.folder / f"shards-{seed}"))
    watched.run()
    spans = [[span for span in spans if span[0] < UNTIL] for spans in watched.spans]
    busy = sum(min(length, UNTIL - begin) for each in spans for begin, length in each)
    return {
        "examples": watched.counted,
        "computing": busy / UNTIL / WORKERS,
        "steps": max(map(len, spans)) - min(map(len, spans)),
        "spans": [[(round(begin, 3), round(length, 3)) for begin, length in each] for each in spans],
    }


def draw(runs: Runs) -> Figure:
    """A panel for each policy: bars where a worker computes, nothing where it waits. Of the first seed."""
    style: Any = STYLE | {"axes.spines.left": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(8.5, 1.5 * len(SAYS) + 0.8), layout="constrained")
        panels = figure.subplots(len(SAYS), sharex=True, squeeze=False)[:, 0]
        for axes, policy in zip(panels, SAYS, strict=True):
            _panel(axes, policy, runs.of(policy, "examples")[0], runs.of(policy, "spans")[0])
        panels[-1].set_xlabel("time (a step of an equal worker is 1); bars: the worker computes, gaps: it waits")
    return figure


def _panel(axes: Axes, policy: str, examples: int, spans: list[list[tuple[float, float]]]) -> None:
    for rank, each in enumerate(spans):
        shown = [(begin, min(length, UNTIL - begin)) for begin, length in each]
        colour = COLOURS[1 if rank == SLOW else 0]
        axes.broken_barh(shown, (rank - 0.35, 0.7), facecolors=colour, edgecolor="white", linewidth=0.8)
    axes.set_title(f"{policy}: {SAYS[policy]}")
    axes.set_title(f"{examples:,} examples", loc="right", fontweight="bold")
    axes.set_yticks(range(WORKERS), [f"worker {rank}" + (" (slow)" * (rank == SLOW)) for rank in range(WORKERS)])
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, UNTIL)
    axes.grid(axis="x", color=FAINT, alpha=0.25)
    axes.set_axisbelow(True)


LOOSER = {Verdict.AGREES: "The other three wait less for the slow one."}

RECIPE = Recipe(
    number="One slow worker",
    shows="who computes when under bsp, ssp and shat",
    small=f"The digits, {WORKERS} workers, one {FACTOR} times slower, the first {UNTIL:g} steps, in virtual time.",
    rows=list(SAYS),
    columns={
        "examples": Column("examples", ",.0f"),
        "computing": Column("share of the time that workers compute", ".2f"),
        "steps": Column("steps of the fastest ahead of the slowest", ".1f"),
    },
    run=run,
    draw=draw,
    claims=[
        Above("ssp:3 trains on more examples than bsp in the same time", LOOSER, "examples", "ssp:3", "bsp"),
        Above("shat trains on more examples than ssp:3 in the same time", LOOSER, "examples", "shat", "ssp:3"),
        Between(
            "bsp: all make the same number of steps, or one step more",
            {Verdict.AGREES: "Nobody begins a step before all have pushed the one before."},
            "steps",
            "bsp",
            0,
            1,
        ),
        Between(
            "shat: workers compute for more than three quarters of the time",
            {Verdict.AGREES: "They wait for the way of messages alone."},
            "computing",
            "shat",
            0.75,
            1,
        ),
    ],
    minutes=0.1,
    side_by_side=True,
)

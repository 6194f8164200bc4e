"""A run with one slow worker under three policies, drawn over time: python -m experiments.slow_worker [--help]"""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.core.sync.policy import from_shorthand
from paceline.exits import exits, run_command
from paceline.plot_style import COLOURS, FAINT, STYLE, png
from paceline.reproduce.virtual_model import Problem, problem_of
from paceline.reproduce.virtual_training import Served, Worker
from paceline.tasks.task import load_config

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


class Watched(Served):
    """A training that notes who computes when."""

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.spans: list[list[tuple[float, float]]] = [[] for _ in range(config.workers)]
        """By worker: when a mini-batch began, and how long it took."""
        self.examples = 0
        self._began = [0.0] * config.workers

    def _begin(self, worker: Worker) -> None:
        self._began[worker.rank] = self.time.now
        super()._begin(worker)

    def _computed(self, worker: Worker, examples: int) -> None:
        began = self._began[worker.rank]
        self.spans[worker.rank].append((began, self.time.now - began))
        if self.time.now <= UNTIL:
            self.examples += examples
        super()._computed(worker, examples)


def watch(policy: str, shards: Path) -> Watched:
    """The digits, trained under this policy with one slow worker, in virtual time. `shards`: a folder for them."""
    config = load_config(
        overrides={
            "task": "digits",
            "policy": from_shorthand(policy),
            "workers": WORKERS,
            "servers": 1,
            "slow": {str(SLOW): f"{FACTOR}x"},
        }
    )
    watched = Watched(config, problem_of(config, shards))
    watched.run()
    return watched


def draw(runs: dict[str, Watched]) -> Figure:
    """A panel for each policy: bars where a worker computes, nothing where it waits."""
    style: Any = STYLE | {"axes.spines.left": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(8.5, 1.5 * len(runs) + 0.8), layout="constrained")
        panels = figure.subplots(len(runs), sharex=True, squeeze=False)[:, 0]
        for axes, (policy, run) in zip(panels, runs.items(), strict=True):
            _panel(axes, policy, run)
        panels[-1].set_xlabel("time (a step of an equal worker is 1); bars: the worker computes, gaps: it waits")
    return figure


def _panel(axes: Axes, policy: str, run: Watched) -> None:
    for rank, spans in enumerate(run.spans):
        shown = [(begin, min(length, UNTIL - begin)) for begin, length in spans if begin < UNTIL]
        colour = COLOURS[1 if rank == SLOW else 0]
        axes.broken_barh(shown, (rank - 0.35, 0.7), facecolors=colour, edgecolor="white", linewidth=0.8)
    axes.set_title(f"{policy}: {SAYS[policy]}")
    axes.set_title(f"{run.examples:,} examples", loc="right", fontweight="bold")
    axes.set_yticks(range(WORKERS), [f"worker {rank}" + (" (slow)" * (rank == SLOW)) for rank in range(WORKERS)])
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, UNTIL)
    axes.grid(axis="x", color=FAINT, alpha=0.25)
    axes.set_axisbelow(True)


def main(
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("docs/pictures/slow-worker.png"),
) -> None:
    """Trains the digits three times in virtual time, with the servers' own slices and policies, and draws who computes when."""
    with exits("experiments.slow_worker"), tempfile.TemporaryDirectory() as folder:
        runs = {policy: watch(policy, Path(folder, "shards")) for policy in SAYS}
        out.write_bytes(png(draw(runs)))
        for policy, run in runs.items():
            busy = sum(length for spans in run.spans for begin, length in spans if begin + length <= UNTIL)
            print(f"{policy}: {run.examples:,} examples, workers compute {busy / UNTIL / WORKERS:.0%} of the time")


if __name__ == "__main__":
    run_command(main)

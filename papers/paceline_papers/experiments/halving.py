"""Successive halving against the full grid, over seeds, in virtual time: python -m paceline_papers.experiments.halving [--help]

64 points of 4 settings on the digits, as docs/run/search.md has them, one after the other in a random order. A round's scores
are those of the full run after as many epochs; the schedule of the rate is constant."""

import random
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import optuna
import typer
from optuna.trial import TrialState

from paceline.launch.settings.read_config import read_config
from paceline.processes.exits import run_command
from paceline.settings.flags import Flags
from paceline_studies.search.grid import pairs, read_grid
from paceline_studies.search.study import budgets
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.training import training_of
from paceline_studies.simulator.workers import Training

GRID = (
    "optimizer.lr=0.4,0.2,0.1,0.05",
    "batch_size=16,32,64,128",
    "optimizer.momentum=0,0.9",
    "policy=bsp,ssp:3",
)
EPOCHS = 16
Score = tuple[float, float]
"""Test accuracy (ratio), and the loss with its sign turned: more is better."""


def main(
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1, ...", min=2)] = 40,
    factors: Annotated[str, typer.Option(help="Of --halving, with commas.")] = "2,4,8,16",
) -> None:
    """Prints what each factor loses against the full grid's best, and how good its choice is with the other seeds."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with TemporaryDirectory() as folder, np.errstate(all="ignore"):
        grids = [_curves(seed, Path(folder) / str(seed)) for seed in range(seeds)]
    print("| | examples | points below the full grid's best | at most .5 below | accuracy with the other seeds |")
    print("|---|---|---|---|---|")
    for factor in (None, *map(int, factors.split(","))):
        print(_row(grids, factor))


def _row(grids: list[list[list[Score]]], factor: int | None) -> str:
    found = [_halved(curves, factor, seed) for seed, curves in enumerate(grids)]
    lost = [
        100 * (max(curve[-1][0] for curve in grid) - grid[best][-1][0])
        for grid, (best, _) in zip(grids, found, strict=True)
    ]
    elsewhere = [
        100 * statistics.fmean(other[best][-1][0] for other in grids if other is not grid)
        for grid, (best, _) in zip(grids, found, strict=True)
    ]
    near = f"{sum(each <= 0.5 for each in lost)} of {len(grids)}"
    name = f"`--halving {factor}`" if factor else "full grid"
    spent = statistics.fmean(share for _, share in found)
    cells = (name, f"{spent:.1%}", _spread(lost), near, _spread(elsewhere))
    return f"| {' | '.join(cells)} |"


def _halved(curves: Sequence[Sequence[Score]], factor: int | None, seed: int) -> tuple[int, float]:
    """The point that is best at the end, and the share of the full grid's examples."""
    points = list(range(len(curves)))
    if factor is None:
        return max(points, key=lambda point: curves[point][-1]), 1.0
    random.Random(seed).shuffle(points)
    rounds = budgets(EPOCHS, len(curves), factor)
    pruner = optuna.pruners.SuccessiveHalvingPruner(rounds[0], factor)
    study = optuna.create_study(direction="maximize", pruner=pruner)

    finished, spent = list[int](), 0
    for point in points:
        trial = study.ask()
        for epochs in rounds:
            spent += epochs
            trial.report(curves[point][epochs - 1][0], epochs)
            if epochs == EPOCHS:
                study.tell(trial, curves[point][-1][0])
                finished.append(point)
            elif trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                break
    return max(finished, key=lambda point: curves[point][-1]), spent / (EPOCHS * len(curves))


def _curves(seed: int, folder: Path) -> list[list[Score]]:
    """Each point's scores after each epoch."""
    found = []
    for point in read_grid(GRID).points():
        config = read_config("digits", Flags(workers=2, servers=1, epochs=EPOCHS, sets=[*pairs(point), f"seed={seed}"]))
        training, curve = training_of(config, problem_of(config, folder)), list[Score]()
        training.run(partial(_watch, curve))
        found.append([*curve[: EPOCHS - 1], _score(training)])
    return found


def _watch(curve: list[Score], training: Training) -> None:
    if training.epochs >= len(curve) + 1:
        curve.append(_score(training))


def _score(training: Training) -> Score:
    measures = training.measures(["test"])
    loss = measures["test_loss"]
    return measures["test_accuracy"], -loss if np.isfinite(loss) else -np.inf


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({statistics.stdev(values):.2f})"


if __name__ == "__main__":
    run_command(main)

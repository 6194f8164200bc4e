"""[SHAT] Fig. 4: accuracy by epoch of ASP and of SHAT, for 2 to 16 workers. The paper has no numbers in its text; it says that
SHAT always converges faster by epoch, and that the gap tends to become larger with the workers (section 4.2)."""

from collections.abc import Sequence
from itertools import product
from math import log2

import numpy as np
from matplotlib.figure import Figure

from paceline_papers.reproduce import shat_on_cifar
from paceline_papers.reproduce.claims import Above, RunFigures, Trend
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Full, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.shat_on_digits import AS_SMALL, EPOCHS, METHODS, MODELS, config_of, problem
from paceline_studies.simulator.training import curve_of

WORKERS = (2, 4, 8, 16)
MODEL = "ResNet-50"

WHY = {
    Verdict.DOES_NOT: "On a task this small ASP's stale weights do little harm, and SHAT mixes older ones into them.",
    Verdict.CANNOT: "The seeds differ more than the methods; with 16 workers some of them diverge for a while.",
}
GAP = {Verdict.CANNOT: "It falls from 2 to 8 workers and is above 0 only with 16, where the seeds differ most."}


def row(method: str, workers: int) -> str:
    return f"{method}, n = {workers}"


ROWS = {row(method, workers): (method, workers) for method, workers in product(("ASP", "SHAT"), WORKERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    method, workers = ROWS[name]
    config = config_of(METHODS[method], workers, seed, MODELS[MODEL])
    return curve_figures(curve_of(config, problem(around, config)).scores[:EPOCHS])


def run_full(around: Around, name: str, seed: int) -> Figures:
    method, workers = ROWS[name]
    result = shat_on_cifar.run_of(around, MODEL, method, METHODS[method], workers, seed)
    return curve_figures(shat_on_cifar.curve_of(result).scores)


def curve_figures(scores: Sequence[float]) -> Figures:
    """Of the accuracies after each epoch, NaN where there is none."""
    return {"mean": float(np.nanmean(scores)), "last": scores[-1], "scores": list(scores)}


def draw(runs: Runs) -> Figure:
    panels = {
        method: {
            f"{count} workers": list(zip(*runs.of(row(method, count), "scores"), strict=False)) for count in WORKERS
        }
        for method in ("ASP", "SHAT")
    }
    epochs = min(len(values) for panel in panels.values() for values in panel.values())
    panels = {title: {name: values[:epochs] for name, values in panel.items()} for title, panel in panels.items()}
    return lines(panels, range(1, epochs + 1), "epochs", "test accuracy", marks=False)


def gap(found: RunFigures, name: str) -> list[float]:
    """How far SHAT's mean over the epochs is above ASP's, for each seed."""
    other = found.of(row("ASP", ROWS[name][1]), "mean")
    return [ours - theirs for ours, theirs in zip(found.of(name, "mean"), other, strict=True)]


RECIPE = Recipe(
    number="Fig. 4",
    shows="accuracy by epoch of ASP and SHAT, by number of workers",
    small=f"The digits with a deep network instead of ResNet-50, 30 epochs, in virtual time. {AS_SMALL}",
    rows=list(ROWS),
    columns={"mean": Column("accuracy, mean over the epochs"), "last": Column("after the last epoch")},
    run=run,
    draw=draw,
    claims=[
        *(
            Above(
                f"{count} workers: SHAT converges faster than ASP", WHY, "mean", row("SHAT", count), row("ASP", count)
            )
            for count in WORKERS
        ),
        Trend(
            "the gap becomes larger with each doubling of the workers",
            GAP,
            [row("SHAT", count) for count in WORKERS],
            [log2(count) for count in WORKERS],
            gap,
            1,
        ),
    ],
    minutes=1,
    seeds=20,
    side_by_side=True,
    full=Full(shat_on_cifar.TRAINS.format(MODEL), shat_on_cifar.NEEDS, run_full),
)

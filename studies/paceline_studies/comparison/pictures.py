"""The curves of a comparison: scores by epoch and by time, the mean over the seeds and how far they lie apart. As pictures: a
line for each side, and a band as wide as its seeds lie apart. Needs matplotlib."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.base.plot_style import FAINT, STYLE, colour_of, marker_of
from paceline.core.chief.scoring import Score
from paceline_studies.comparison.comparison import Comparison
from paceline_studies.comparison.finished import Finished
from paceline_studies.comparison.sides import Side

PLACES = 80
"""Of a curve by time."""
Numbers = npt.NDArray[Any]
SIZE = (5.6, 4.0)
"""Inches."""
MARKED = 12
"""A curve with more places has a marker on some of them only."""
WORST = 0.12
"""Share of a picture's scores that its axis may leave out (ratio)."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Of one side."""

    name: str
    at: Numbers
    """Epochs, or seconds."""
    mean: Numbers
    low: Numbers
    """Mean minus standard deviation; the mean itself of a single seed."""
    high: Numbers


def by_epoch(found: Comparison) -> list[Curve]:
    """A place for each epoch that every run of the side has come to."""
    return _curves(found, lambda score: float(score.epoch), lambda ends: np.arange(0, int(ends) + 1, dtype=float))


def by_time(found: Comparison) -> list[Curve]:
    """Up to the time (seconds) when the first run of a side has ended."""
    return _curves(found, lambda score: score.seconds, lambda ends: np.linspace(0.0, ends, PLACES))


def _curves(found: Comparison, place: Callable[[Score], float], places: Callable[[float], Numbers]) -> list[Curve]:
    curves = [_curve(side, f"{found.split}_{found.measure.name}", place, places) for side in found.sides]
    return [curve for curve in curves if curve is not None]


def _curve(side: Side, name: str, place: Callable[[Score], float], places: Callable[[float], Numbers]) -> Curve | None:
    """None where a run has no such scores."""
    lines = [_line(run, name, place) for run in side.runs]
    if any(not len(at) for at, _ in lines):
        return None
    begins, ends = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    at = places(ends)
    at = at[at >= begins] if begins <= ends else np.array([ends])
    values = np.array([np.interp(at, *line) for line in lines])
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(lines) > 1 else np.zeros_like(mean)
    return Curve(side.name, at, mean, mean - spread, mean + spread)


def _line(run: Finished, name: str, place: Callable[[Score], float]) -> tuple[Numbers, Numbers]:
    scores = [(place(score), score.metrics[name]) for score in run.history if name in score.metrics]
    known = sorted(
        {at: value for at, value in scores if np.isfinite(value)}.items()
    )  # a run that goes back has two of an epoch
    return np.array([at for at, _ in known]), np.array([value for _, value in known])


def pictures(found: Comparison) -> dict[str, Figure]:
    """By the name of the file, without its ending."""
    seconds = "training time (virtual seconds)" if found.seconds_are == "virtual" else "training time (seconds)"
    curves = {"by-epoch": (by_epoch(found), "epoch"), "by-time": (by_time(found), seconds)}
    up = f"{found.split} {found.measure.name.replace('_', ' ')}"
    return {name: _drawn(lines, across, up, found.measure.sign) for name, (lines, across) in curves.items() if lines}


def _drawn(curves: Sequence[Curve], across: str, up: str, sign: int) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        for number, curve in enumerate(curves):
            axes.fill_between(curve.at, curve.low, curve.high, color=colour_of(number), alpha=0.15, linewidth=0)
            axes.plot(
                curve.at,
                curve.mean,
                color=colour_of(number),
                marker=marker_of(number),
                markevery=max(1, len(curve.at) // MARKED),
                markersize=4,
                linewidth=1.5,
                label=curve.name,
            )
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(color=FAINT, alpha=0.3)
        _show_the_end(axes, curves, sign)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        return figure


def _show_the_end(axes: Axes, curves: Sequence[Curve], sign: int) -> None:
    """The axis leaves out the worst scores: those of the first epoch would press all others into a line."""
    low, high = (np.concatenate([getattr(curve, end) for curve in curves]) for end in ("low", "high"))
    ends = np.quantile(low, WORST if sign > 0 else 0.0), np.quantile(high, 1.0 if sign > 0 else 1 - WORST)
    room = 0.06 * (ends[1] - ends[0]) or 0.01
    axes.set_ylim(ends[0] - room, ends[1] + room)

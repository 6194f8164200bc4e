"""The curves of a comparison as pictures: a line for each side, and a band as wide as its seeds lie apart. Needs matplotlib."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.base.plot_style import FAINT, STYLE, colour_of, marker_of
from paceline.studies.comparison.comparison import Comparison
from paceline.studies.comparison.curves import Curve, by_epoch, by_time

SIZE = (5.6, 4.0)
"""Inches."""
MARKED = 12
"""A curve with more places has a marker on some of them only."""
WORST = 0.12
"""Share of a picture's scores that its axis may leave out (ratio)."""


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

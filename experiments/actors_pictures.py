"""The figures of `experiments.actors` as a PNG."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from paceline.plot_style import FAINT, INK, STYLE, colour_of, marker_of, png


class Line(NamedTuple):
    """What one form gave."""

    centralised: tuple[float, float]
    """Error and updates, means over the seeds."""
    taus: Sequence[float]
    errors: Sequence[tuple[float, float]]
    """Mean and standard deviation at each tau."""
    updates: Sequence[tuple[float, float]]


def against_tau(lines: Mapping[str, Line], published: Mapping[float | None, tuple[float, int]]) -> bytes:
    """Error and updates against tau ([Actors] Figs. 3 and 4), with the centralised run's as a dashed line. `published`: the
    paper's error and updates by tau; None: centralised."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.6, 4.2), layout="constrained")
        error, updates = figure.subplots(1, 2)
        for number, (form, line) in enumerate(lines.items()):
            look: dict[str, Any] = {
                "color": colour_of(number),
                "marker": marker_of(number),
                "markersize": 4,
                "label": form,
            }
            for axes, values, level in zip(
                (error, updates), (line.errors, line.updates), line.centralised, strict=True
            ):
                means, spreads = zip(*values, strict=True)
                axes.errorbar(line.taus, means, spreads, elinewidth=0.8, linewidth=1.4, **look)
                axes.axhline(level, linestyle="--", linewidth=1, color=colour_of(number))
        for place, axes in enumerate((error, updates)):
            known = [(tau, found[place]) for tau, found in published.items() if tau is not None]
            axes.plot(*zip(*known, strict=True), "*", color=INK, markersize=11, label="[Actors]")
            axes.axhline(published[None][place], linestyle=":", linewidth=1.4, color=FAINT)
            axes.set_xlabel("tau")
        error.set_ylabel("error")
        error.set_ylim(bottom=0)
        updates.set_ylabel("parameter values\nreceived by a data shard")
        updates.set_yscale("log")
        updates.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        updates.legend(frameon=False)
        return png(figure)

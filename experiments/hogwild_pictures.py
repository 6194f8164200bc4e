"""The figures of `experiments.hogwild` as PNG."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paceline.plot_style import FAINT, STYLE, colour_of, png

WIDTH, HEIGHT = 4.6, 3.8
"""Inches of a panel."""

Shared = bool | Literal["row", "col"]


class Curve(NamedTuple):
    """How a run went along."""

    seconds: list[float]
    members: list[int]
    """At each of these seconds."""
    examples: list[int]
    """Likewise, counted so far."""
    accuracy: list[tuple[float, float]]
    """Seconds of each score, and test accuracy."""


class Disturbed(NamedTuple):
    """The same run without and with a change of members."""

    calm: Curve
    changing: Curve


def members_over_time(found: Mapping[str, Disturbed]) -> bytes:
    """Members, examples counted and test accuracy over time, with the undisturbed run next to them; a column for each mode."""
    with mpl.rc_context(STYLE):
        figure, grid = _panels(3, len(found), sharey="row", sharex="col")
        rows = [grid[start : start + len(found)] for start in range(0, len(grid), len(found))]
        for column, (mode, pair) in enumerate(found.items()):
            for number, (curve, name) in enumerate(zip(pair, ("undisturbed", "two leave, one joins"), strict=True)):
                colour, style = (FAINT, "--") if number == 0 else (colour_of(0), "-")
                members, examples, accuracy = (row[column] for row in rows)
                members.step(curve.seconds, curve.members, style, where="post", color=colour, label=name)
                examples.plot(curve.seconds, [count / 1000 for count in curve.examples], style, color=colour)
                accuracy.plot(*zip(*curve.accuracy, strict=True), style + "o", color=colour, markersize=3.5)
            rows[0][column].set_title(mode)
            rows[0][column].set_ylim(0, 4.6)
            rows[0][column].yaxis.set_major_locator(MaxNLocator(integer=True))
            rows[2][column].set_xlabel("time of training (s)")
        for row, label in zip(rows, ("members", "examples counted\n(thousands)", "test accuracy"), strict=True):
            row[0].set_ylabel(label)
        rows[0][0].legend(frameon=False, loc="lower left")
        figure.align_ylabels()
        return png(figure)


def _panels(rows: int, columns: int, sharex: Shared = False, sharey: Shared = False) -> tuple[Figure, list[Axes]]:
    height = HEIGHT if rows == 1 else 2.6 * rows
    figure = Figure(figsize=(max(6.0, WIDTH * columns), height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).ravel().tolist()

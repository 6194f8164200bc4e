"""How the report's pictures are laid out."""

import math
import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.sharder.report.shard_set import Sets

WIDE = 13.4
"""Inches; sets stand side by side until they would need more."""
NARROW, ALONE, MARGIN = 3.4, 5.8, 1.2
"""Inches of the narrowest panel, of one alone in its row, and of a panel's labels."""
LINE, BESIDE = 34, 32
"""Letters of a title that fit above the narrowest panel, and of a label next to the lowest one."""
CELL = 0.27
"""Inches of a panel for each worker, if they fit; three digits of the heat map's do."""
TICKS = 25


def cell(workers: int) -> float:
    """Inches of a worker in the heat map."""
    return (min(WIDE, max(NARROW, MARGIN + CELL * workers)) - MARGIN) / workers


def panels(
    sets: Sets, inches: float, height: float, least: float = NARROW, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """An axes for each set, side by side while they fit, otherwise below each other; `inches` for each worker."""
    least = least if len(sets) > 1 else max(least, ALONE)
    width = max(least, max(MARGIN + inches * shards.workers for shards in sets))
    beside = max(1, min(len(sets), int(WIDE // min(width, WIDE))))
    rows = math.ceil(len(sets) / beside)
    figure = Figure(figsize=(min(WIDE, width) * beside + 0.6, height * rows), layout="constrained")
    grid = figure.subplots(rows, beside, squeeze=False, sharey=sharey).ravel().tolist()
    for spare in grid[len(sets) :]:
        spare.set_visible(False)
    return figure, grid[: len(sets)]


def lines(name: str) -> str:
    """A long name in lines that fit above the narrowest panel."""
    return textwrap.fill(name, LINE)


def label_left(row: list[Axes], label: str) -> None:
    """The label at the first panel of each row."""
    for axes in row:
        place: Any = axes.get_subplotspec()
        if place.is_first_col():
            axes.set_ylabel(textwrap.fill(label, BESIDE))


def whole_ticks(axes: Axes, workers: int) -> None:
    """Worker numbers below the axes, as many as are legible."""
    step = math.ceil(workers / TICKS)
    axes.set_xticks(range(0, workers, step), [str(worker) for worker in range(0, workers, step)])

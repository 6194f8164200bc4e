"""The results of a search as a picture: a heat map where two keys vary, a line where one does. Needs matplotlib."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paceline.base.plot_style import COLOURS, FAINT, INK, Drawn, colour_of, drawn, marker_of, styled, svg
from paceline.studies.search.grid import Grid, shown
from paceline.studies.search.results import ACCURACY, FAILED, Results, Row

CELL_WIDE, CELL_HIGH = 1.0, 0.6
"""Inches."""
LEAST = 0.02
"""The heat map's colours span at least this much, so that chance does not look like a finding."""
LABEL = 14
"""Letters of a value in a line of its label."""
DARK = 0.55
"""Colours with less green than this are dark, so the text on them is white (ratio)."""


def draw(grid: Grid, results: Results) -> Drawn | None:
    """The picture; None where no key varies, or more than two."""
    kinds = {1: _line, 2: _heat_map}
    kind = kinds.get(len(grid.varied))
    if kind is None or results.best is None:
        return None
    with styled():
        return drawn(kind(grid, results))


def draw_curves(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> str:
    """The SVG of a metric over epochs, a line for each of these points."""
    with styled(10):
        figure = Figure(figsize=(5.4, 3.2), layout="constrained")
        axes = figure.subplots()
        for number, (name, (epochs, values)) in enumerate(curves.items()):
            colour, marker = colour_of(number), marker_of(number)
            axes.plot(epochs, values, color=colour, marker=marker, markersize=3.5, linewidth=1.3, label=name)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(label)
        axes.grid(axis="y", color=FAINT, alpha=0.3)
        figure.legend(loc="outside upper left", frameon=False, ncols=4, fontsize=9)
        return svg(figure)


def _heat_map(grid: Grid, results: Results) -> Figure:
    down, across = grid.varied
    rows, columns = grid.values[down], grid.values[across]
    by_place = {(rows.index(row.values[down]), columns.index(row.values[across])): row for row in results.rows}
    figure = Figure(figsize=(2.6 + CELL_WIDE * len(columns), 1.8 + CELL_HIGH * len(rows)), layout="constrained")
    axes = figure.subplots()
    scores = np.array(
        [[_score(by_place[y, x], results) for x in range(len(columns))] for y in range(len(rows))], dtype=float
    )
    lowest, highest, cmap = np.nanmin(scores), np.nanmax(scores), "viridis"
    if results.is_larger_better:
        lowest = min(lowest, highest - LEAST)
    else:
        highest, cmap = max(highest, lowest + LEAST), "viridis_r"
    image = axes.imshow(scores, vmin=lowest, vmax=highest, cmap=cmap, aspect="auto")
    axes.set_facecolor("#e4e4e4")
    for (y, x), row in by_place.items():
        text = (FAILED if row.failed else row.error or "-") if np.isnan(scores[y, x]) else f"{scores[y, x]:.4f}"
        weight = "bold" if row is results.best else "normal"
        dark = not np.isnan(scores[y, x]) and image.cmap(image.norm(scores[y, x]))[1] < DARK
        colour = "white" if dark else "black"  # on a dark page, too
        axes.text(x, y, text, ha="center", va="center", color=colour, fontsize=10, weight=weight)
    axes.set_xticks(range(len(columns)), _labels(columns))
    axes.set_yticks(range(len(rows)), _labels(rows))
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    axes.set_title(_title(results), fontsize=11)
    axes.spines[:].set_visible(False)
    bar: Any = figure.colorbar(image, ax=axes, label=_measure(results))
    bar.outline.set_visible(False)
    return figure


def _line(grid: Grid, results: Results) -> Figure:
    (key,) = grid.varied
    values = grid.values[key]
    figure = Figure(figsize=(max(5.8, 2.0 + 0.8 * len(values)), 3.9), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(values))
    scores = np.array([_score(row, results) for row in results.rows])
    spread = [row.deviation(results.measure) or 0.0 for row in results.rows] if results.folds else None
    label = "this search" + (f" (mean and standard deviation of {results.folds} folds)" if results.folds else "")
    axes.errorbar(places, scores, spread, marker="o", color=COLOURS[0], capsize=4, label=label)
    _mark_best(axes, results, scores)
    if results.tested == ACCURACY and any(row.paper for row in results.rows):
        paper = [row.paper.accuracy if row.paper else np.nan for row in results.rows]
        axes.plot(places, paper, "s--", color=COLOURS[1], label="the paper, on test data")
    axes.set_xticks(places, _labels(values))
    axes.set_xlabel(key)
    axes.set_ylabel(_measure(results))
    axes.grid(axis="y", color=FAINT, alpha=0.3)
    figure.legend(loc="outside upper left", frameon=False)
    return figure


def _mark_best(axes: Axes, results: Results, scores: Any) -> None:
    assert results.best is not None
    place = next(place for place, row in enumerate(results.rows) if row is results.best)
    label = f"best: {scores[place]:.4f}"
    axes.plot(place, scores[place], "o", markersize=13, markerfacecolor="none", markeredgecolor=INK, label=label)


def _score(row: Row, results: Results) -> float:
    found = row.mean(results.measure)
    return float("nan") if found is None else found


def _title(results: Results) -> str:
    assert results.best is not None
    of = f", mean of {results.folds} folds" if results.folds else ""
    return f"{_measure(results)}{of}; best: {_score(results.best, results):.4f}"


def _measure(results: Results) -> str:
    return results.measure.replace("_", " ") + (" (ratio)" if results.tested == ACCURACY else "")


def _labels(values: list[Any]) -> list[str]:
    return [textwrap.fill(shown(value), LABEL) for value in values]

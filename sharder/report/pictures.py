"""The report's pictures and how they are laid out; only this module needs matplotlib."""

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from paceline.base.plot_style import INK, Drawn, colour_of, drawn, marker_of, styled
from paceline.sharder.report.shard_set import Clusters, Sets, ShardSet, digits

DENSE, SPARSE = "#0072B2", "#D55E00"
ON_LIGHT = "black"
"""Of text in a light cell, on a dark page, too."""
DIGIT = 0.08
"""Inches of a digit in the heat map."""
FEWEST_PERCENT = 0.05
"""The heat map's colours span at least this deviation either way, so that rounding does not look like imbalance."""
MANY_POINTS = 60
"""With more workers than this, of all sets together, their markers are smaller."""
WIDE = 13.4
"""Inches; sets stand side by side until they would need more."""
NARROW, ALONE, MARGIN = 3.4, 5.8, 1.2
"""Inches of the narrowest panel, of one alone in its row, and of a panel's labels."""
LINE, BESIDE = 34, 32
"""Letters of a title that fit above the narrowest panel, and of a label next to the lowest one."""
CELL = 0.27
"""Inches of a panel for each worker, if they fit; three digits of the heat map's do."""
TICKS = 25


def draw(sets: Sets) -> dict[str, Drawn]:
    """Every picture by the name of its file; none of clusters or seconds where no set has any."""
    found = {
        "class-counts.png": class_counts,
        "heat-map.png": heat_map,
        "divergence.png": divergence_points,
        "clusters.png": cluster_sizes,
        "seconds.png": seconds_bars,
    }
    with styled():
        figures = {name: make(sets) for name, make in found.items()}
        return {name: drawn(figure) for name, figure in figures.items() if figure is not None}


def class_counts(sets: Sets) -> Figure:
    """A box for each worker over its classes' counts ([Sharding] Fig. 7), a panel for each set."""
    alike = len({shards.workers for shards in sets}) == 1
    figure, grid = panels(sets, inches=CELL, height=3.6, sharey=alike)
    for number, (shards, axes) in enumerate(zip(sets, grid, strict=True)):
        colour = colour_of(number)
        boxes = axes.boxplot(
            shards.counts,
            positions=range(shards.workers),
            widths=0.62,
            patch_artist=True,
            medianprops={"color": INK, "linewidth": 1.6},
            flierprops={"marker": "o", "markersize": 4, "markeredgecolor": colour},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour, alpha=0.55, edgecolor=INK)
        even = shards.counts.mean(axis=0)
        axes.hlines(even, np.arange(shards.workers) - 0.5, np.arange(shards.workers) + 0.5, INK, ":", linewidth=1.2)
        lowest, highest = shards.counts.min(), shards.counts.max()
        axes.set_title(f"{lines(shards.name)}\n{lowest:,} to {highest:,} of a class")
        axes.set_xlabel("worker")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        whole_ticks(axes, shards.workers)
    label_left(grid, f"examples of a class{sets[0].of_task} (count)")
    return figure


def heat_map(sets: Sets) -> Figure:
    """Classes x workers: how much more or less of a class a worker has than an even spread gives it."""
    rows = max(len(shards.classes) for shards in sets)
    figure, grid = panels(sets, inches=CELL, height=min(11.0, max(3.6, 1.5 + 0.28 * rows)))
    largest = max(float(np.abs(shards.deviation).max()) for shards in sets)
    limit = min(max(FEWEST_PERCENT, largest), 1.0)
    for shards, axes in zip(sets, grid, strict=True):
        image = axes.imshow(shards.deviation, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.spines[:].set_visible(False)
        axes.set_title(f"{lines(shards.name)}\nup to {abs(shards.furthest[2]):.1%} off its share")
        axes.set_xlabel("worker")
        whole_ticks(axes, shards.workers)
        step = math.ceil(len(shards.classes) / TICKS)
        axes.set_yticks(range(0, len(shards.classes), step), shards.classes[::step])
        if len(shards.classes) <= TICKS and DIGIT * len(f"{shards.counts.max():,}") <= cell(shards.workers):
            _write_cells(axes, shards, limit)
    label_left(grid, f"class{sets[0].of_task}")
    high = float(figure.get_figheight())
    bar = figure.colorbar(
        image,
        ax=grid,
        extend="max" if largest > limit else "neither",
        format=PercentFormatter(1.0),
        shrink=min(0.95, 4.5 / high),
        anchor=(0.0, 0.9),
        aspect=28,
        pad=0.02,
    )
    bar.set_label("more or less than its share (%)")
    bar.outline.set_visible(False)
    return figure


def divergence_points(sets: Sets) -> Figure:
    """Each worker's divergence; dashes mark what chance gives."""
    figure, (axes,) = panels([max(sets, key=lambda shards: shards.workers)], inches=0.6, height=3.9, least=9.0)
    size = 8 if len(sets) * max(shards.workers for shards in sets) <= MANY_POINTS else 5
    for number, shards in enumerate(sets):
        middle = np.arange(shards.workers) + 0.7 * ((number + 0.5) / len(sets) - 0.5)
        label = f"{shards.name}: mean {digits(shards.divergence.mean())}, worst {digits(shards.divergence.max())} bits"
        colour, marker = colour_of(number), marker_of(number)
        axes.vlines(middle, 0, shards.divergence, color=colour, linewidth=1.5, alpha=0.6)
        axes.plot(
            middle, shards.divergence, marker, color=colour, markersize=size, label=label, clip_on=False, zorder=3
        )
    for workers, chance in {shards.workers: shards.chance for shards in sets}.items():
        label = f"dealt to {workers} workers by chance, expected: {digits(chance)} bits"
        axes.axhline(chance, color=INK, linestyle="--", linewidth=1.2, label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("worker")
    axes.set_ylabel("Jensen-Shannon divergence\nfrom all shards (bits)")
    whole_ticks(axes, max(shards.workers for shards in sets))
    figure.legend(loc="outside upper left", frameon=False, ncols=1)
    return figure


def cluster_sizes(sets: Sets) -> Figure | None:
    """Every cluster's size, largest first, those that went to all workers in another colour."""
    found = [(shards, shards.clusters) for shards in sets if shards.clusters is not None]
    if not found:
        return None
    figure, grid = panels([shards for shards, _ in found], inches=0.0, height=3.8, least=5.8, sharey=True)
    for (shards, clusters), axes in zip(found, grid, strict=True):
        _cluster_panel(axes, shards, clusters)
    label_left(grid, "examples in the cluster (count)")
    return figure


def _cluster_panel(axes: Axes, shards: ShardSet, clusters: Clusters) -> None:
    order = np.argsort(-clusters.sizes, kind="stable")
    places, sizes, sparse = np.arange(1, len(order) + 1), clusters.sizes[order], clusters.sparse[order]
    axes.bar(places[~sparse], sizes[~sparse], color=DENSE, width=0.85, label="dealt round robin")
    if sparse.any():
        label = "sparse: every worker gets all of it"
        axes.bar(places[sparse], sizes[sparse], color=SPARSE, hatch="///", edgecolor="white", width=0.85, label=label)
    below = f"sparse below {shards.sparse_below}"
    axes.axhline(shards.sparse_below, color=INK, linestyle="--", linewidth=1.2, label=below)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(0.7, 6 * float(sizes.max()))  # room for the legend
    axes.legend(loc="upper right", frameon=False, fontsize=10)
    axes.set_title(f"{lines(shards.name)}\n{len(order)} clusters, {int(sparse.sum())} sparse")
    axes.set_xlabel("cluster, from largest to smallest")
    axes.set_xlim(0.3, len(order) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def seconds_bars(sets: Sets) -> Figure | None:
    """How long each set took to deal out ([Sharding] Fig. 8); on a log scale where one took far longer."""
    timed = [
        (lines(shards.name), shards.seconds, colour_of(number))
        for number, shards in enumerate(sets)
        if shards.seconds is not None
    ]
    if not timed:
        return None
    figure = Figure(figsize=(9.0, 1.3 + 0.5 * len(timed)), layout="constrained")
    axes = figure.add_subplot()
    names, seconds, colours = zip(*timed, strict=True)
    bars = axes.barh(range(len(timed)), seconds, color=colours, height=0.6)
    axes.bar_label(bars, [f"{digits(value)} s" for value in seconds], padding=5)
    axes.set_yticks(range(len(timed)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("time to deal the examples out (s)")
    if min(seconds) > 0 and max(seconds) > 20 * min(seconds):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlabel("time to deal the examples out (s, log scale)")
    return figure


def _write_cells(axes: Axes, shards: ShardSet, limit: float) -> None:
    for (row, column), count in np.ndenumerate(shards.counts):
        dark = abs(shards.deviation[row, column]) > 0.6 * limit
        axes.text(
            column, row, f"{count:,}", ha="center", va="center", fontsize=8.5, color="white" if dark else ON_LIGHT
        )


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

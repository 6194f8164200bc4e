"""The figures of `experiments.hogwild` as PNG."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paceline.plot_style import FAINT, STYLE, colour_of, marker_of, png

WIDTH, HEIGHT = 4.6, 3.8
"""Inches of a panel."""

Shared = bool | Literal["row", "col"]
Line = list[tuple[int, float]]
"""Workers and seconds."""
Epochs = list[list[tuple[float, float]]]
"""Training and validation loss after each epoch, for each worker."""


class Pace(NamedTuple):
    """What a push is made of."""

    batches: int
    """Mini-batches."""
    step: float
    """Emulated computation of each (seconds)."""
    stalls: str = ""
    """How often a push takes longer, and how much, like 5x@10%."""

    @property
    def told(self) -> str:
        """In words."""
        batches = f"{self.batches} mini-batches" if self.batches > 1 else "1 mini-batch"
        pause = f", {1000 * self.step:g} ms each" if self.step else ""
        stalls = f", {self.stalls}" if self.stalls else ""
        return f"{batches}{pause}{stalls}"


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


def time_by_workers(lines: Mapping[Pace, Mapping[str, Line]]) -> bytes:
    """Seconds to the end against workers ([Hogwild] Fig. 1), a panel for each pace."""
    with mpl.rc_context(STYLE):
        figure, grid = _panels(1, len(lines))
        for (pace, modes), axes in zip(lines.items(), grid, strict=True):
            for number, (mode, line) in enumerate(modes.items()):
                axes.plot(*zip(*line, strict=True), marker_of(number) + "-", color=colour_of(number), label=mode)
            axes.set_title(f"a push: {pace.told}")
            axes.set_xlabel("workers")
            axes.set_ylim(bottom=0)
            axes.set_xticks(sorted({count for line in modes.values() for count, _ in line}))
        grid[0].set_ylabel("time to the end (s)")
        grid[0].legend(frameon=False)
        return png(figure)


def loss_curves(losses: Mapping[str, Epochs]) -> bytes:
    """Training and validation loss against epochs ([Hogwild] Figs. 2 and 3), a panel for each mode."""
    with mpl.rc_context(STYLE):
        figure, grid = _panels(1, len(losses), sharey=True)
        for (mode, found), axes in zip(losses.items(), grid, strict=True):
            for which, (name, style) in enumerate((("training", "--"), ("validation", "-"))):
                for epochs in found:
                    axes.plot(
                        range(1, len(epochs) + 1),
                        [each[which] for each in epochs],
                        style,
                        color=colour_of(which),
                        alpha=0.3,
                        linewidth=0.9,
                    )
                means = _means([[each[which] for each in epochs] for epochs in found])
                axes.plot(range(1, len(means) + 1), means, style, color=colour_of(which), linewidth=2, label=name)
            ends = sorted(map(len, found))
            last = f"{ends[0]}" if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
            axes.set_title(f"{mode}, {len(found)} workers;\nthey leave after epoch {last}")
            axes.set_xlabel("epochs")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_ylim(bottom=0)
        grid[0].set_ylabel("loss, each worker's (thin)\nand mean")
        grid[0].legend(frameon=False)
        return png(figure)


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


def _means(lines: Sequence[Sequence[float]]) -> list[float]:
    """The mean at each place that all lines have."""
    return [mean(values) for values in zip(*lines, strict=False)]

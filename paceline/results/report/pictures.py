"""The report's curves and bars; only this module needs matplotlib. Each is small enough for a phone."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from paceline.base.plot_style import COLOURS, FAINT, INK, colour_of, marker_of, styled, svg
from paceline.core.chief.best_model import SPLITS
from paceline.results.report.course import SPENT, Course, mean
from paceline.results.report.kept import RunRecord

WIDE, HIGH = 5.4, 3.2
"""Inches."""
LETTERS = 10.0
"""Points."""
FEW = 3
"""With more scores than this, that of the untrained weights is left out where it is no loss: others would lie on a line."""
FEW_POINTS = 12
MOST_LINES = 6
"""More workers are drawn as their median, and the space between the least and the most."""
MOST_BARS = 32
BAR = 0.26
"""Inches of a worker's bar."""
_SPENT = {
    "compute_seconds": ("compute", COLOURS[2]),
    "data_seconds": ("data", COLOURS[4]),
    "push_seconds": ("push", COLOURS[0]),
    "pull_seconds": ("pull", COLOURS[3]),
    "exchange_seconds": ("push and pull", COLOURS[0]),
    "wait_seconds": ("wait", COLOURS[1]),
}
"""What each part of a worker's time is called, and its colour."""


def drawn(make: Callable[[Figure], None], high: float = HIGH) -> str:
    """The SVG of what `make` puts into an empty figure."""
    with styled(LETTERS):
        figure = Figure(figsize=(WIDE, high), layout="constrained")
        make(figure)
        return svg(figure)


def scores(kept: RunRecord, metric: str, by_time: bool) -> str:
    """A metric of each split over epochs or time; of the loss that of the mini-batches, too."""

    def make(figure: Figure) -> None:
        axes = figure.subplots()
        if metric == "loss" and kept.course.has("loss"):
            points = [
                (point.seconds if by_time else point.epoch, value)
                for point in kept.course.points
                if (value := mean(each["loss"] for each in point.figures.values() if "loss" in each)) is not None
            ]
            axes.plot(*zip(*points, strict=True), color=FAINT, linewidth=1, label="mini-batches")
        for number, split in enumerate(reversed(SPLITS)):
            found = [score for score in kept.scores if f"{split}_{metric}" in score.metrics]
            found = found[1:] if len(found) > FEW and metric != "loss" and not found[0].epoch else found
            if found:
                places = [score.seconds if by_time else score.epoch for score in found]
                values = [score.metrics[f"{split}_{metric}"] for score in found]
                axes.plot(places, values, color=colour_of(number), marker=marker_of(number), markersize=4, label=split)
        if metric == "loss" and _is_wide(axes):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if by_time:
            _mark_events(axes, kept)
        _labels(axes, "training time (s)" if by_time else kept.course.unit, metric.replace("_", " "))
        _legend(figure)

    return drawn(make)


def _is_wide(axes: Axes) -> bool:
    """Whether a log scale shows more: all values are above 0, and far apart."""
    drawn_values = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    values = np.concatenate(drawn_values) if drawn_values else np.empty(0)
    values = values[np.isfinite(values)]
    return bool(values.size) and bool(values.min() > 0) and bool(values.max() > 10 * values.min())


def per_worker(course: Course, figure_name: str, label: str) -> str:
    """A figure of each worker over time."""

    def make(figure: Figure) -> None:
        axes = figure.subplots()
        if len(course.workers) <= MOST_LINES:
            for number, worker in enumerate(course.workers):
                _curve(axes, *course.over_time(worker, figure_name), colour_of(number), worker)
        else:
            _band(axes, course, figure_name)
        _labels(axes, "training time (s)", label)
        _legend(figure)

    return drawn(make)


def _curve(
    axes: Axes, across: Sequence[float], up: Sequence[float], colour: str = COLOURS[0], label: str | None = None
) -> None:
    """A line, with its points where these are few: nobody sees a line of a single one."""
    marker = "o" if len(across) <= FEW_POINTS else ""
    axes.plot(across, up, color=colour, linewidth=1.3, marker=marker, markersize=3.5, label=label)


def _band(axes: Axes, course: Course, name: str) -> None:
    found = [
        (point.seconds, values)
        for point in course.points
        if (values := [each[name] for each in point.figures.values() if name in each])
    ]
    seconds = [second for second, _ in found]
    lows, highs = ([pick(values) for _, values in found] for pick in (min, max))
    axes.fill_between(seconds, lows, highs, color=COLOURS[4], alpha=0.35, linewidth=0, label="least to most")
    axes.plot(seconds, [median(values) for _, values in found], color=COLOURS[0], label="median of the workers")


def rate(kept: RunRecord) -> str:
    """Examples per second of all workers, with what happened."""

    def make(figure: Figure) -> None:
        axes = figure.subplots()
        points = kept.course.points
        _curve(axes, [each.seconds for each in points], [each.rate for each in points])
        axes.set_ylim(bottom=0)
        _mark_events(axes, kept)
        _labels(axes, "training time (s)", f"{'steps' if kept.course.steps else 'examples'} per second")
        _legend(figure)

    return drawn(make)


def learning_rate(course: Course) -> str:
    """The rate of the servers' steps, over epochs."""

    def make(figure: Figure) -> None:
        axes = figure.subplots()
        points = [
            (point.epoch, value)
            for point in course.points
            if (value := mean(each["lr"] for each in point.figures.values() if "lr" in each)) is not None
        ]
        _curve(axes, [epoch for epoch, _ in points], [value for _, value in points])
        axes.set_ylim(bottom=0)
        _labels(axes, course.unit, "learning rate")

    return drawn(make)


def spent(sums: Mapping[str, Mapping[str, float]], workers: Sequence[str], seconds: float) -> str:
    """Where the time of each worker went; `seconds`: how long the run trained."""

    def make(figure: Figure) -> None:
        axes = figure.subplots()
        places, left = list(range(len(workers))), [0.0] * len(workers)
        for part in SPENT:
            values = [sums[worker].get(part, 0.0) for worker in workers]
            if any(values):
                label, colour = _SPENT[part]
                axes.barh(places, values, left=left, height=0.7, color=colour, label=label)
                left = [before + value for before, value in zip(left, values, strict=True)]
        axes.axvline(seconds, color=INK, linestyle=":", linewidth=1.2, label="training")
        axes.set_yticks(places, workers)
        axes.invert_yaxis()
        axes.set_xlabel("time (s)")
        _legend(figure)

    return drawn(make, 1.3 + BAR * len(workers))


def part_names(course: Course) -> list[tuple[str, str]]:
    """The parts of workers' time that this run tells: (figure, what it is called)."""
    return [(part, _SPENT[part][0]) for part in SPENT if any(part in sums for sums in course.sums.values())]


def _mark_events(axes: Axes, kept: RunRecord) -> None:
    """Dotted lines where faults happened and processes came back."""
    faults = [each.at for each in kept.faults if each.at is not None]
    back = [event.seconds for event in kept.course.events if "again" in event.said]
    for times, colour, label in ((faults, COLOURS[5], "a fault"), (back, FAINT, "a process was started again")):
        for number, second in enumerate(times):
            axes.axvline(second, color=colour, linestyle=":", linewidth=1.2, label=None if number else label)


def _labels(axes: Axes, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if across in ("epoch", "step"):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=FAINT, alpha=0.3)


def _legend(figure: Figure) -> None:
    if figure.axes[0].get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper left", frameon=False, ncols=4, fontsize=9, columnspacing=1.2, handlelength=1.6)

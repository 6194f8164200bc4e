"""The figures of `experiments.survey` as PNG."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paceline.core.run.scoring import Score
from paceline.plot_style import FAINT, STYLE, colour_of, marker_of, png

WIDTH, HEIGHT = 4.4, 3.4
"""Inches of a panel."""


def accuracies(curves: Mapping[tuple[str, str], Sequence[Score]], titles: Mapping[str, str]) -> bytes:
    """Test accuracy by epoch (above) and by time (below), a column for each cluster. `curves`: by cluster and policy;
    `titles`: what to call the clusters."""
    clusters, policies = (list(dict.fromkeys(names)) for names in zip(*curves, strict=True))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, WIDTH * len(clusters)), 2 * HEIGHT), layout="constrained")
        grid = figure.subplots(2, len(clusters), squeeze=False, sharey=True)
        for (cluster, policy), history in curves.items():
            number, column = policies.index(policy), clusters.index(cluster)
            accuracy = [score.metrics["test_accuracy"] for score in history]
            for axes, places in zip(
                grid[:, column], ([score.epoch for score in history], [score.seconds for score in history]), strict=True
            ):
                axes.plot(
                    places, accuracy, f"{marker_of(number)}-", color=colour_of(number), label=policy, markersize=4
                )
        for column, cluster in enumerate(clusters):
            grid[0, column].set_title(titles[cluster])
            grid[0, column].set_xlabel("epochs")
            grid[0, column].xaxis.set_major_locator(MaxNLocator(integer=True))
            grid[1, column].set_xlabel("time of training (s)")
        for axes in grid[:, 0]:
            axes.set_ylabel("test accuracy")
        grid[0, 0].legend(frameon=False, loc="lower right")
        return png(figure)


def speed_ups(found: Mapping[tuple[str, int], float | None]) -> bytes:
    """Speed-up against workers, a line for each policy; `found`: by policy and workers."""
    counts = sorted({count for _, count in found})
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH + 1, HEIGHT + 0.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(counts, counts, "--", color=FAINT, label="in proportion")
        for number, policy in enumerate(dict.fromkeys(policy for policy, _ in found)):
            line = [(count, value) for (of, count), value in found.items() if of == policy and value is not None]
            if line:
                axes.plot(*zip(*line, strict=True), f"{marker_of(number)}-", color=colour_of(number), label=policy)
        axes.set_xlabel("workers")
        axes.set_ylabel("speed-up over one worker")
        axes.set_xticks(counts)
        axes.legend(frameon=False)
        return png(figure)

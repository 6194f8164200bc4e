"""Pictures that several recipes draw: lines with the spread of the seeds."""

from collections.abc import Mapping, Sequence
from statistics import mean

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paceline.base.plot_style import STYLE, colour_of, marker_of

Panel = Mapping[str, Sequence[Sequence[float]]]
"""By line: the values of all seeds at each place."""


def lines(
    panels: Mapping[str, Panel],
    at: Sequence[float] | Mapping[str, Mapping[str, Sequence[float]]],
    across: str,
    up: str,
    log: bool = False,
    marks: bool = True,
) -> Figure:
    """A panel for each title, with lines of means. Where there are marks, bars go from the lowest to the highest seed. `at`:
    the places, or those of each panel and line. `log`: their axis is logarithmic; each place has its tick
    where all lines have the same."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 4.6 * len(panels)) + 1.5, 3.8), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for (title, panel), axes in zip(panels.items(), grid, strict=True):
            for number, (label, values) in enumerate(panel.items()):
                means = [mean(each) for each in values]
                bars = [[middle - min(each), max(each) - middle] for middle, each in zip(means, values, strict=True)]
                places = at[title][label] if isinstance(at, Mapping) else at
                form = {"color": colour_of(number), "label": label, "linewidth": 1.5}
                if marks:
                    axes.errorbar(
                        places, means, list(zip(*bars, strict=True)), marker=marker_of(number), capsize=2, **form
                    )
                else:
                    axes.plot(places, means, **form)
            axes.set_title(title)
            axes.set_xlabel(across)
            if log:
                axes.set_xscale("log")
            if log and not isinstance(at, Mapping):
                axes.set_xticks(at, [f"{place:g}" for place in at])
                axes.minorticks_off()
        grid[0].set_ylabel(up)
        figure.legend(*grid[-1].get_legend_handles_labels(), loc="outside right center", frameon=False)
        return figure


def spreads(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """A panel for each title: every seed's value of each row as a point, and a line at their mean."""
    with mpl.rc_context(STYLE):
        rows = list(next(iter(panels.values())))
        figure = Figure(figsize=(3.4 * len(panels) + 1.5, 0.4 * len(rows) + 1.2), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for (title, panel), axes in zip(panels.items(), grid, strict=True):
            for place, values in enumerate(panel.values()):
                axes.plot(values, [place] * len(values), "o", color=colour_of(0), alpha=0.6, markersize=5)
                axes.plot([mean(values)] * 2, [place - 0.3, place + 0.3], color=colour_of(1), linewidth=2)
            axes.set_title(title)
            axes.xaxis.set_major_locator(MaxNLocator(4))
        grid[0].set_yticks(range(len(rows)), rows)
        grid[0].invert_yaxis()
        return figure

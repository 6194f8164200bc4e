"""`python -m tools.dashboard_pictures`: does a run with servers and one without, a Prometheus next to them, and draws the
dashboard's rows from what that has seen, for docs/watch/grafana.md (three minutes; needs prometheus)."""

import io
import sys
import tempfile
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TypeAlias

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.base.plot_style import STYLE
from paceline.core.settings.config import Config
from tools.dashboard import places
from tools.panels import PEERS, ROWS, Panel
from tools.prometheus import EVERY, Prometheus, beside, other_exporters, watched_run

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
RUN = ("digits", "--workers", "2", "--servers", "2", "--slow", "1=5x", "--epochs", "20")
PEERS_RUN = ("digits", "--workers", "3", "--servers", "0", "--policy", "dpsgd", "--slow", "2=5x", "--epochs", "6")
WINDOW = "10s"
"""What rates are taken over."""
UNIT = 0.42
"""Inches of a unit of the dashboard's grid."""
LEGEND_LINE = 0.45
"""Units."""
Series: TypeAlias = list[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]
"""Legend, seconds since the start, values."""
_UNITS: dict[str, Callable[[float], str]] = {
    "percentunit": lambda value: f"{100 * value:.4g} %",
    "percent": lambda value: f"{value:.4g} %",
    "s": lambda value: f"{value:.3g} s" if value >= 1 or not value else f"{1000 * value:.3g} ms",
    "bytes": lambda value: _scaled(value, "B"),
    "Bps": lambda value: _scaled(value, "B/s"),
    "none": lambda value: f"{value:.4g}",
}


def series(prometheus: Prometheus, panel: Panel, run: str, start: float, end: float) -> Series:
    """What the panel shows."""
    found: Series = []
    for query in panel.queries:
        results = prometheus.query_range(query.query(run, WINDOW), start, end)
        for result in sorted(results, key=lambda result: _order(result["metric"])):
            times, values = np.array([[float(time), float(value)] for time, value in result["values"]]).T
            found.append((query.named(result["metric"]), times - start, values))
    return found


def draw(title: str, shown: dict[Panel, Series]) -> bytes:
    """One row of the dashboard as the content of a PNG file, with each legend below its panel."""
    there = places(tuple(shown))
    tall = there[-1].y + there[-1].height + 1.2
    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, UNIT * tall), dpi=72)
        figure.text(0.01, 1 - 0.2 / tall, title, va="top", fontweight="bold")
        for panel, x, y, wide, high in there:
            columns = max(2, wide // 4)
            lines = ceil(len(shown[panel]) / columns) if panel.kind == "timeseries" else 0
            bottom = y + high - 0.2 - LEGEND_LINE * lines
            axes = figure.add_axes(((x + 1.2) / 24, 1 - bottom / tall, (wide - 1.8) / 24, (bottom - y - 1.8) / tall))
            axes.set_title(panel.title + (" (made up)" if panel.other_exporter else ""), fontsize=10)
            _draw(axes, panel, shown[panel])
            if lines:
                axes.legend(
                    loc="upper left",
                    bbox_to_anchor=((x + 0.8) / 24, 1 - (bottom + 0.8) / tall),
                    bbox_transform=figure.transFigure,
                    borderaxespad=0,
                    frameon=False,
                    fontsize=8,
                    ncols=columns,
                )
        figure.savefig(stream, format="png", facecolor="white", pil_kwargs={"optimize": True})
    return stream.getvalue()


def _draw(axes: Axes, panel: Panel, found: Series) -> None:
    suffix = panel.unit.removeprefix("suffix:").strip()
    tell: Callable[[float], str] = _UNITS.get(panel.unit, lambda value: f"{_short(value)} {suffix}")
    axes.tick_params(labelsize=8)
    if panel.is_number:
        axes.axis("off")
        legend, _, values = max(found, key=lambda each: each[1][-1])  # the newest
        said = legend if panel.says == "name" else tell(values[-1])
        axes.text(0, 0.4, said, va="center", fontsize=13, color="tab:blue")
        return
    if panel.kind == "bargauge":
        axes.barh([legend for legend, _, _ in found], [values[-1] for _, _, values in found])
        axes.xaxis.set_major_formatter(lambda value, _: tell(value))
        return
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    if panel.kind == "heatmap":
        _heatmap(axes, found)
        return
    if panel.stacked:
        _stack(axes, found)
    else:
        for legend, times, values in found:
            axes.plot(times, values, label=legend, linewidth=1.2, clip_on=False)
    if not panel.is_signed:
        axes.set_ylim(0, 1 if panel.unit == "percentunit" else None)
    axes.yaxis.set_major_formatter(lambda value, _: tell(value))
    axes.grid(alpha=0.3)


def _stack(axes: Axes, found: Series) -> None:
    times = np.unique(np.concatenate([each for _, each, _ in found]))
    rows = [np.interp(times, each, np.nan_to_num(values), left=0, right=0) for _, each, values in found]
    axes.stackplot(times, rows, labels=[legend for legend, _, _ in found], alpha=0.7)


def _heatmap(axes: Axes, found: Series) -> None:
    """Buckets count everything below them; a cell shows what came in its own bucket."""
    times = np.unique(np.concatenate([each for _, each, _ in found]))
    below = np.array([np.interp(times, each, values, left=0, right=0) for _, each, values in found])
    cells = np.diff(below, axis=0, prepend=0)
    axes.imshow(
        cells,
        aspect="auto",
        origin="lower",
        cmap="Blues",
        interpolation="nearest",
        extent=(times[0], times[-1], -0.5, len(found) - 0.5),
    )
    axes.set_yticks(range(len(found)), [legend for legend, _, _ in found])


def _order(labels: dict[str, str]) -> tuple[float, str]:
    """Buckets by their number, others by name."""
    return float(labels.get("le", 0)), " ".join(labels.values())


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else _scaled(value, "")


def _scaled(value: float, unit: str) -> str:
    for prefix in ("", "k", "M"):
        if abs(value) < 1000:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.3g} G{unit}"


def seen(prometheus: Prometheus, run: str, start: float, end: float, peers: bool) -> dict[str, dict[Panel, Series]]:
    """What the panels of each row that such a run fills show, from a little before the first step on."""
    steps = prometheus.query_range(f'min (paceline_worker_steps_total{{run="{run}"}})', start, end)
    start = float(steps[0]["values"][0][0]) - 5
    return {
        title: {panel: series(prometheus, panel, run, start, end) for panel in row}
        for title, row in ROWS.items()
        if (title == PEERS) == peers
    }


def main() -> None:
    """Writes docs/pictures/dashboard-*.png."""
    config = Config(workers=2, servers=2)
    with (
        tempfile.TemporaryDirectory() as name,
        other_exporters(config) as others,
        beside(Path(name) / "prometheus", others) as prometheus,
    ):
        rows: dict[str, dict[Panel, Series]] = {}
        for arguments, peers in ((RUN, False), (PEERS_RUN, True)):
            run = "peers" if peers else "watched"
            _, start, end = watched_run(prometheus, Path(name), *arguments, name=run)
            rows |= seen(prometheus, run, start, end - 2 * EVERY, peers)
    if empty := [panel.title for shown in rows.values() for panel, found in shown.items() if not found]:
        sys.exit(f"Nothing was seen for: {', '.join(empty)}.")
    PICTURES.mkdir(exist_ok=True)
    for title, shown in rows.items():
        (PICTURES / f"dashboard-{title.split()[0].lower()}.png").write_bytes(draw(title, shown))


if __name__ == "__main__":
    main()

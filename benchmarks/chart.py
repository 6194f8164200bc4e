"""One chart of a recorded run: python -m benchmarks.chart [--help]"""

import re
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import typer
from matplotlib.figure import Figure

from benchmarks.report import RESULTS, ROWS
from paceline.base.plot_style import COLOURS, FAINT, STYLE, png
from paceline.core.errors import UsageError
from paceline.processes.exits import exits, run_command

NAMES = {
    "lane-asp": "Paceline, asp",
    "lane-bsp": "Paceline, bsp",
    "gloo": "Gloo allreduce",
    "ray": "Ray",
    "torch-rpc": "torch.distributed.rpc",
    "tensorflow-ps": "TensorFlow ParameterServerStrategy",
    "tutorial-grpc": "a tutorial's gRPC server",
}
"""The contenders that the chart shows, and what it calls them."""


def medians(log: str, run: str, shape: str) -> dict[str, float]:
    """Seconds of an iteration of each contender in the run of that heading. UsageError: there is no such run."""
    heads = re.findall(r"^## (\d{4}-.*)$", log, re.MULTILINE)
    if run not in heads:
        raise UsageError(f"--run is {run!r}. benchmarks/results.md has these runs: {', '.join(heads)}.")
    entry = log.split(f"## {run}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in entry.splitlines() if "|" in line]
    measured = [dict(zip(ROWS, row, strict=False)) for row in rows]
    return {
        NAMES[row["contender"]]: float(row["median"])
        for row in measured
        if row["contender"] in NAMES and row.get("shape") == shape and row["median"]
    }


def draw(seconds: dict[str, float]) -> Figure:
    """A bar for each contender, the quickest on top."""
    names = sorted(seconds, key=seconds.__getitem__)
    with mpl.rc_context(STYLE | {"axes.spines.left": False}):
        figure = Figure(figsize=(8.5, 0.42 * len(names) + 1.0), layout="constrained")
        axes = figure.subplots()
        colours = [COLOURS[0] if name.startswith("Paceline") else FAINT for name in names]
        bars = axes.barh(names, [seconds[name] for name in names], color=colours)
        axes.bar_label(bars, fmt="%.2f", padding=4)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set_xlabel("seconds for one exchange (lower is better)")
    return figure


def main(
    run: Annotated[str, typer.Option(help="The heading of a run in the log of benchmarks/results.md.")],
    shape: Annotated[str, typer.Option(help="Workers and servers.")] = "W2S1",
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("docs/pictures/exchange.png"),
) -> None:
    """Draws the medians of one recorded run."""
    with exits("benchmarks.chart"):
        out.write_bytes(png(draw(medians(RESULTS.read_text(), run, shape))))


if __name__ == "__main__":
    run_command(main)

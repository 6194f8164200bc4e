"""`python -m benchmarks.slicing`: [SHAT] Fig. 6, how each way of cutting the model scales with the workers.

Training throughput (workers x steps per second) against one worker with the model whole, for ResNet-50 and VGG-16 on
four servers. Computation is emulated by sleeping, so that this machine's cores carry the communication only, as they
would next to accelerators; the figures say how far the servers are the bottleneck.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from benchmarks.contenders import Contender, Entry, Shape
from benchmarks.harness import Limits, Measured, measure
from benchmarks.layouts import LAYOUTS, layout
from paceline.core.errors import PacelineError
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import make_plan

SLICES = ("whole", "layerwise", "memorywise")
SERVERS = 4
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Series:
    """One line of the figure."""

    layout: str
    slices: str
    imbalance: float
    """The largest slice over the mean."""
    speed_ups: dict[int, float]
    """Workers -> throughput over that of one worker with the model whole."""
    failures: dict[int, str]
    """Workers -> why there is no figure."""


def entries(layouts: Sequence[str], workers: Sequence[int], compute: float) -> list[Entry]:
    """Every model, cut and number of workers; the first is what the others of that model are compared with."""
    return [
        Entry(_contender(name, slices, compute), Shape(_elements(name), count, SERVERS))
        for name in layouts
        for count in workers
        for slices in SLICES
    ]


def _contender(name: str, slices: str, compute: float) -> Contender:
    """Paceline running free, whose communication is [SHAT]'s: nobody waits, every push is answered with the model."""
    options = f"--policy asp --codec none --layout {name} --slices {slices} --compute {compute}"
    return Contender(f"{name} {slices}", ("-m", "benchmarks.peers.paceline", *options.split()))


def _elements(name: str) -> int:
    return sum(math.prod(shape) for _, shape in layout(name))


def speed_ups(results: Sequence[Measured]) -> list[Series]:
    """The figure's lines from its measurements."""
    rows = {(result.entry.contender.name, result.entry.shape.workers): result for result in results}
    names = dict.fromkeys(result.entry.contender.name for result in results)
    return [_series(name, rows) for name in names]


def _series(name: str, rows: dict[tuple[str, int], Measured]) -> Series:
    model, slices = name.split()
    mine = {workers: row for (other, workers), row in rows.items() if other == name}
    base = rows.get((f"{model} whole", 1))
    found = {
        workers: workers * base.median / row.median
        for workers, row in mine.items()
        if base is not None and base.seconds and row.seconds
    }
    missing = {
        workers: row.failure or "one worker with the model whole was not measured"
        for workers, row in mine.items()
        if workers not in found
    }
    imbalance = make_plan(layout(model), SERVERS, PlanConfig.model_validate({"slices": slices})).imbalance
    return Series(model, slices, imbalance, found, missing)


def cells(series: Series, workers: Sequence[int]) -> list[str]:
    """One line of the table."""
    figures = [f"{series.speed_ups[count]:.2f}" if count in series.speed_ups else "" for count in workers]
    return [
        series.layout,
        series.slices,
        f"{series.imbalance:.2f}",
        *figures,
        "; ".join(dict.fromkeys(series.failures.values())),
    ]


@app.command()
def main(
    model: Annotated[list[str] | None, typer.Option(help="Only this layout (may be repeated).")] = None,
    workers: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of workers; default 1, 2 and 4.")] = None,
    compute: Annotated[float, typer.Option(min=0, help="Emulated computation of a step (seconds).")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Starts of each.")] = 1,
    iterations: Annotated[int, typer.Option(help="Exchanges of each start; the first two are dropped.")] = 5,
    start_limit: Annotated[float, typer.Option(help="Longest that one start may take (seconds).")] = 180.0,
    limit: Annotated[float, typer.Option(help="No start begins after this (seconds).")] = 1200.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    record: Annotated[bool, typer.Option(help="Append the figures to benchmarks/results.md.")] = False,
) -> None:
    """Speed-up against workers for the model whole, layerwise and memorywise."""
    counts = workers or [1, 2, 4]
    todo = entries(model or list(LAYOUTS), counts, compute)
    found = speed_ups(measure(todo, Limits(rounds, iterations, start_limit, limit), Console(stderr=True).print))
    heads = ["model", "slices", "imbalance", *(f"{count} workers" for count in counts), "remark"]
    rows = [cells(series, counts) for series in found]
    if as_json:
        print(json.dumps([vars(series) for series in found], indent=2))
    else:
        title = f"Speed-up on {SERVERS} servers, {compute:g} s of emulated computation a step"
        report.table(Console(), title, heads, rows)
    if record:
        report.record(["python", "-m", "benchmarks.slicing", *sys.argv[1:]], [(heads, rows)])


if __name__ == "__main__":
    try:
        app()
    except PacelineError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)

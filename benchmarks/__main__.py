"""`python -m benchmarks`: Paceline and its peers in one interleaved run, and how far each target is reached."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from benchmarks.contenders import LARGE, RESNET_50, suite
from benchmarks.harness import Limits, measure
from benchmarks.targets import UNASKED, judge
from paceline.core.errors import PacelineError

app = typer.Typer(add_completion=False)


@app.command()
def main(
    elements: Annotated[
        int | None, typer.Option(min=1, help="Model size (float32 values); default 23.5M, 138M with --large.")
    ] = None,
    large: Annotated[bool, typer.Option(help="The large model with 1 and 2 workers.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only this contender (may be repeated).")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Only this shape, like W2S1 (may be repeated).")] = None,
    rounds: Annotated[int, typer.Option(help="Starts of each contender.")] = 3,
    iterations: Annotated[int, typer.Option(help="Exchanges of each start; the first two are dropped.")] = 7,
    start_limit: Annotated[float, typer.Option(help="Longest that one start may take (seconds).")] = 120.0,
    limit: Annotated[float, typer.Option(help="No start begins after this (seconds).")] = 1200.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    record: Annotated[bool, typer.Option(help="Append the figures to benchmarks/results.md.")] = False,
) -> None:
    """Contenders take turns, one alive at a time; trust the ratios, not the seconds."""
    size = elements or (LARGE if large else RESNET_50)
    entries = suite(size, large=large, only=only or (), shapes=shape or ())
    news = Console(stderr=True)
    results = measure(entries, Limits(rounds, iterations, start_limit, limit), news.print)
    outcomes = judge(results)
    if only or shape:  # most targets need rows that were not asked for
        outcomes = [outcome for outcome in outcomes if not outcome.verdict.endswith(UNASKED)]
    if as_json:
        print(json.dumps(report.as_json(results, outcomes), indent=2))
    else:
        report.show(Console(), f"Seconds per iteration, {size:,} float32", results, outcomes)
    if record:
        command = ["python", "-m", "benchmarks", *sys.argv[1:]]
        tables: list[tuple[Sequence[str], Sequence[Sequence[str]]]]
        tables = [(report.ROWS, [report.row_cells(result) for result in results])]
        if outcomes:
            tables.append((report.TARGETS, [report.target_cells(outcome) for outcome in outcomes]))
        report.record(command, tables)


if __name__ == "__main__":
    try:
        app()
    except PacelineError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)

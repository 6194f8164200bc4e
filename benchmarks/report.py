"""A run's figures for people (tables), for programs (JSON) and for later (benchmarks/results.md)."""

import datetime
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness import REPOSITORY, Measured
from benchmarks.targets import Outcome

RESULTS = REPOSITORY / "benchmarks" / "results.md"
ROWS = ("contender", "shape", "median", "min", "n", "CPU s/GB", "faults/GB", "remark")
TARGETS = ("#", "measure (lower is better)", "median", "min", "must", "goal", "reached")


def row_cells(result: Measured) -> list[str]:
    """One contender's line, under ROWS."""
    measured = (
        [f"{result.median:.3f}", f"{result.best:.3f}", str(len(result.seconds))] if result.seconds else ["", "", "0"]
    )
    costs = [_number(result.cost("cpu_seconds_per_gb"), ".2f"), _number(result.cost("minor_faults_per_gb"), ",.0f")]
    return [result.entry.contender.name, str(result.entry.shape), *measured, *costs, result.failure]


def target_cells(outcome: Outcome) -> list[str]:
    """One target's line, under TARGETS."""
    target = outcome.target
    style = ".2f" if target.below else ",.0f"
    figures = [_number(figure, style) for figure in (outcome.value, outcome.best, target.must, target.goal)]
    return [target.number, target.measure, *figures, outcome.verdict]


def _number(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def show(console: Console, title: str, results: Sequence[Measured], outcomes: Sequence[Outcome]) -> None:
    """Both tables, and under each why some of its lines are empty."""
    table(console, title, ROWS, [row_cells(result) for result in results])
    if outcomes:
        table(console, "Targets: ratios within this run", TARGETS, [target_cells(outcome) for outcome in outcomes])


def table(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that fits 80 columns: the last cell of a row is its remark, and long ones come as lines below."""
    drawn = Table(*heads, title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    notes = []
    for *cells, remark in rows:
        short, _, why = remark.partition(": ")
        drawn.add_row(*cells, short)
        if why:
            notes.append(f"{' '.join(cells[:2])}: {why}")
    console.print(drawn)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def as_json(results: Sequence[Measured], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything measured, iteration by iteration."""
    return {
        "about": about(),
        "rows": [
            {
                "contender": result.entry.contender.name,
                "elements": result.entry.shape.elements,
                "workers": result.entry.shape.workers,
                "servers": result.entry.shape.servers,
                "seconds": result.seconds,
                "median": result.median if result.seconds else None,
                "min": result.best if result.seconds else None,
                "costs": result.costs,
                "failure": result.failure or None,
            }
            for result in results
        ],
        "targets": [
            {
                "target": outcome.target.number,
                "measure": outcome.target.measure,
                "value": outcome.value,
                "value_of_minima": outcome.best,
                "must": outcome.target.must,
                "goal": outcome.target.goal,
                "verdict": outcome.verdict,
            }
            for outcome in outcomes
        ],
    }


def about() -> dict[str, Any]:
    """Where and of what the figures are: commit, machine, date."""
    return {
        "commit": _commit(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    return (git("rev-parse", "--short", "HEAD") or "none") + (" with changes" if git("status", "--porcelain") else "")


def record(
    command: Sequence[str], tables: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]], file: Path = RESULTS
) -> None:
    """Append a run to the results: its command, commit, machine and date, then its tables of (heads, rows)."""
    facts = about()
    lines = [
        f"\n## {facts['date']}",
        f"`{shlex.join(command)}` at commit {facts['commit']}, {facts['cores']} cores, {facts['memory_gb']} GB memory.",
    ]
    for heads, rows in tables:
        lines += ["", *(_line(cells) for cells in (heads, ["---"] * len(heads), *rows))]
    with file.open("a") as results:
        results.write("\n".join(lines) + "\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

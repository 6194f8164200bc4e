"""When a codec pays: seconds per step and to an accuracy, by the speed of the workers' links: python -m benchmarks.links

A real run in lock-step for each cell, in real processes, each worker behind a link that `tc tbf` holds to the speed,
both ways; the server's is not limited, as if each worker had a server. Needs Linux and root."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.processes.exits import exits, run_command
from paceline.settings.load_settings import load
from paceline.tasks.task import load_task
from paceline_papers.reproduce.network import UNLIMITED
from paceline_papers.reproduce.processes import SERVERS, Ran, run

TASK = str(Path(__file__).with_name("wide_digits.py"))
NO_LIMIT = "unlimited"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the table."""

    push: str
    pull: str
    speed: float
    """Of each worker's link (bit/s)."""

    @property
    def codec(self) -> str:
        """Its row."""
        return self.push if self.pull == "none" else f"{self.push}, pull {self.pull}"


@dataclass(frozen=True, slots=True)
class LinkResult:
    """What one run gave."""

    step: float
    """Mean over the workers (seconds)."""
    megabytes: float
    """That a worker sent and received in a step, mean."""
    reached: float | None
    """Training time until the accuracy was reached; None where it never was (seconds)."""
    accuracy: float
    """At the end."""


def main(
    speeds: Annotated[
        str, typer.Option(help="Speeds of each worker's link, with commas (Gbit/s), or 'unlimited'.")
    ] = f"0.05,0.1,0.5,1,{NO_LIMIT}",
    codecs: Annotated[
        str, typer.Option(help="Codecs with commas: of pushes, and after ':' of pulls, like sign:int8.")
    ] = "none,bf16:bf16,int8:int8,sign:int8,topk:int8,powersgd:int8",
    workers: Annotated[int, typer.Option(min=1, max=32, help="How many workers.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Examples that a worker takes in a step.")] = 32,
    accuracy: Annotated[float, typer.Option(min=0, max=1, help="Test accuracy that time is taken to (ratio).")] = 0.9,
    task: Annotated[str, typer.Option(help="What is trained.")] = TASK,
    record: Annotated[bool, typer.Option(help="Append the tables to benchmarks/results.md.")] = False,
) -> None:
    """Prints two Markdown tables; ratios are to the first codec at the same speed."""
    with exits("links"):
        every, news = planned(codecs, speeds), Console(stderr=True)
        found: dict[Cell, LinkResult] = {}
        for cell in every:
            config = settings(cell, task, workers, epochs, batch)
            found[cell] = judged(run(config, rates(cell.speed, workers)), accuracy)
            news.print(f"{cell.codec} at {_speed(cell.speed)}: {found[cell].step:.3f} s a step")
        tables = [seconds_per_step(found), seconds_to(found, accuracy)]
        for heads, rows in tables:
            for line in (heads, ["---"] * len(heads), *rows):
                print(f"| {' | '.join(line)} |")
            print()
        if record:
            report.record(["python", "-m", "benchmarks.links", *sys.argv[1:]], tables)


def planned(codecs: str, speeds: str) -> list[Cell]:
    """Every codec at every speed, in the order given. UsageError: a speed that is none."""
    numbers = [_rate(speed) for speed in speeds.split(",")]
    pairs = [codec.partition(":") for codec in codecs.split(",")]
    return [Cell(push, pull or "none", speed) for speed in numbers for push, _, pull in pairs]


def _rate(given: str) -> float:
    """Gbit/s as bit/s."""
    try:
        rate = UNLIMITED if given == NO_LIMIT else float(given) * 1e9
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise UsageError(f"--speeds: got {given!r}; expected Gbit/s above 0, or '{NO_LIMIT}', with commas.")
    return rate


def rates(speed: float, workers: int) -> dict[str, float]:
    """Every node's link (bit/s)."""
    return {SERVERS: UNLIMITED} | {f"worker-{rank}": speed for rank in range(workers)}


def settings(cell: Cell, task: str, workers: int, epochs: int, batch: int) -> Config:
    """The settings of a cell's run. Snapshots on disk are put off."""
    own = {
        "task": task,
        "workers": workers,
        "servers": 1,
        "epochs": epochs,
        "batch_size": batch,
        "batch": "worker",
        "policy": {"name": "bsp"},
        "codec": {"push": cell.push, "pull": cell.pull},
        "checkpoint": {"every": 3600},
    }
    return load(None, own, load_task(task, None).settings)


def judged(ran: Ran, accuracy: float) -> LinkResult:
    """A run's figures."""
    steps = sum(worked.steps for worked in ran.workers)
    scores = ran.outcome.history
    reached = next((score.seconds for score in scores if score.metrics["test_accuracy"] >= accuracy), None)
    return LinkResult(
        sum(worked.seconds for worked in ran.workers) / steps,
        sum(sum(worked.traffic or ()) for worked in ran.workers) / steps / 1e6,
        reached,
        ran.outcome.metrics["test_accuracy"],
    )


Table = tuple[list[str], list[list[str]]]


def seconds_per_step(found: Mapping[Cell, LinkResult]) -> Table:
    """A row for each codec, a column for each speed; the ratio to the first codec in brackets."""
    heads, rows = _table(found, "seconds per step", lambda one: one.step, ".3f")
    heads.insert(1, "MB a step")
    for cells, cell in zip(rows, _firsts(found), strict=True):
        cells.insert(1, f"{found[cell].megabytes:.2f}")
    return heads, rows


def seconds_to(found: Mapping[Cell, LinkResult], accuracy: float) -> Table:
    """Likewise, with the accuracy at the end of the first speed's run."""
    heads, rows = _table(found, f"seconds to {accuracy:g}", lambda one: one.reached, ".1f")
    heads.append("accuracy at the end")
    for cells, cell in zip(rows, _firsts(found), strict=True):
        cells.append(f"{found[cell].accuracy:.4f}")
    return heads, rows


def _table(
    found: Mapping[Cell, LinkResult], what: str, figure: Callable[[LinkResult], float | None], style: str
) -> Table:
    speeds = list(dict.fromkeys(cell.speed for cell in found))
    firsts = _firsts(found)
    base = {speed: figure(found[Cell(firsts[0].push, firsts[0].pull, speed)]) for speed in speeds}
    rows = []
    for first in firsts:
        values = {speed: figure(found[Cell(first.push, first.pull, speed)]) for speed in speeds}
        rows.append([first.codec, *(_ratio(values[speed], base[speed], style) for speed in speeds)])
    return [what, *map(_speed, speeds)], rows


def _firsts(found: Mapping[Cell, LinkResult]) -> Sequence[Cell]:
    """Each codec's cell at the first speed."""
    first = next(iter(found)).speed
    return [cell for cell in found if cell.speed == first]


def _ratio(value: float | None, base: float | None, style: str) -> str:
    """'0.250 (0.50)'."""
    if value is None:
        return "not reached"
    return f"{value:{style}}" + (f" ({value / base:.2f})" if base else "")


def _speed(rate: float) -> str:
    return NO_LIMIT if rate == UNLIMITED else f"{rate / 1e9:g} Gbit/s"


if __name__ == "__main__":
    run_command(main)

"""What a loop of the user's costs: a step of a launched script compared with a step of the same training as a task.

Run: python -m benchmarks.scripts. The two take turns; only the ratios count."""

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer

from benchmarks import report
from benchmarks.harness import REPOSITORY
from paceline.core.errors import TryAgain
from paceline.processes.exits import exits, run_command

TARGET = 0.02
"""Share of a task's step by which a script's may be longer."""
EXAMPLES = 1347
"""Training data of the task: three quarters of the digits."""
HEADS = ("path", "ms a step", "beside the task", "CPU ms a step", "beside the task", "n")


class Step(NamedTuple):
    """Worker 0's step in one run (seconds)."""

    wall: float
    """Median."""
    cpu: float
    """Of all its threads, mean."""


def main(
    workers: Annotated[int, typer.Option(help="Workers, in lock-step with one server.", min=1)] = 2,
    steps: Annotated[int, typer.Option(help="Steps of each run.", min=200)] = 1000,
    batch: Annotated[int, typer.Option(help="Examples of a worker's mini-batch.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Runs of each path.", min=1)] = 5,
    record: Annotated[bool, typer.Option(help="Append the table to benchmarks/results.md.")] = False,
) -> None:
    """Prints a Markdown table of medians over the rounds."""
    with exits("benchmarks.scripts"), tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[Step]] = {path: [] for path in PATHS}
        for number, path in itertools.product(range(rounds), PATHS):
            found[path].append(step_of(path, Path(folder), f"{path}-{number}", (workers, steps, batch)))
            wall, cpu = found[path][-1]
            print(f"{path}: {wall * 1e3:.3f} ms a step, CPU {cpu * 1e3:.3f}", file=sys.stderr, flush=True)
        cells = rows(found)
        for line in (HEADS, ["---"] * len(HEADS), *cells):
            print(f"| {' | '.join(line)} |")
        if record:
            report.record(["python", "-m", "benchmarks.scripts", *sys.argv[1:]], [(HEADS, cells)])


def as_task(workers: int, steps: int, batch: int) -> list[str]:
    """The command: as many epochs as have this many steps."""
    epochs = str(-(-steps * workers * batch // EXAMPLES))
    own = {"batch_size": batch, "batch": "worker", "evaluate_every": epochs}
    words = itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in own.items())
    return ["run", str(REPOSITORY / "benchmarks/timed_digits.py"), "--epochs", epochs, *words]


def as_script(workers: int, steps: int, batch: int) -> list[str]:
    """The command."""
    script = str(REPOSITORY / "benchmarks/timed_digits_script.py")
    return ["launch", script, "--steps", str(steps), "--batch", str(batch)]


PATHS: Mapping[str, Callable[[int, int, int], list[str]]] = {"task": as_task, "script": as_script}


def step_of(path: str, folder: Path, name: str, shape: tuple[int, int, int]) -> Step:
    """`shape`: workers, steps, mini-batch. TryAgain: the run failed."""
    kind, *what = PATHS[path](*shape)
    options = ["-w", str(shape[0]), "-s", "1", "--policy", "bsp", "--run", name, "--set", "checkpoint.every=3600"]
    command = [sys.executable, "-m", "paceline.cli", kind, *options, *what]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise TryAgain(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-1000:]}")
    return last_step((folder / "runs" / name / "logs/worker-0.log").read_text())


def last_step(log: str) -> Step:
    """What benchmarks/timed_digits.py said last. TryAgain: nothing."""
    said = [json.loads(line) for line in log.splitlines() if line.startswith('{"step"')]
    if not said:
        raise TryAgain("The worker has said nothing about its steps; make the run longer.")
    return Step(said[-1]["step"], said[-1]["cpu"])


def rows(found: Mapping[str, Sequence[Step]]) -> list[list[str]]:
    """A line for each path."""
    middles = {path: Step(*(median(values) for values in zip(*steps, strict=True))) for path, steps in found.items()}
    task = middles["task"]
    return [
        [
            path,
            f"{middle.wall * 1e3:.3f}",
            f"{middle.wall / task.wall:.3f}",
            f"{middle.cpu * 1e3:.3f}",
            f"{middle.cpu / task.cpu:.3f}",
            str(len(found[path])),
        ]
        for path, middle in middles.items()
    ]


if __name__ == "__main__":
    run_command(main)

"""`python -m benchmarks.ddp --data CIFAR10`: target 13, training for real, against torch's DistributedDataParallel.

Both sides train the small CNN with two workers in lock-step, from the same first weights, on the same mini-batches with
the same augmentation, and take the same optimizer steps: they learn the same but for rounding. What counts is the training
time until the test accuracy asked for is reached at the end of an epoch; starting and scoring are outside of it.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from benchmarks.contenders import Contender, Entry, Shape
from benchmarks.harness import Measured, StartFailed, start
from benchmarks.targets import Target, judge
from benchmarks.training import Epoch, settings
from paceline.core.errors import PacelineError
from paceline.core.settings.config import Config
from paceline.settings.load_settings import write_yaml
from paceline.sharder.sharding import make_shards

ELEMENTS = 545_098
"""Parameters of the small CNN."""
_DDP = Contender("gloo-ddp", ("-m", "benchmarks.peers.ddp"))
_PACELINE = Contender("paceline-bsp", ("-m", "benchmarks.peers.paceline_training"))
ENTRIES = (
    Entry(_DDP, Shape(ELEMENTS, 2, 1)),
    Entry(_PACELINE, Shape(ELEMENTS, 2, 1)),
    Entry(_PACELINE, Shape(ELEMENTS, 2, 2)),
)
TARGETS = (
    Target("13", "BSP, 1 server / Gloo DDP", ("paceline-bsp", 2, 1), ("gloo-ddp", 2, 1), 1.05, 0.90),
    Target("13", "BSP, 2 servers / Gloo DDP", ("paceline-bsp", 2, 2), ("gloo-ddp", 2, 1), 1.05, 0.90),
)
HEADS = ("contender", "shape", "median", "min", "n", "s/epoch", "accuracy by epoch", "remark")
app = typer.Typer(add_completion=False)


@dataclass
class Training:
    """One contender's starts, or why there are none."""

    entry: Entry
    starts: list[Sequence[Epoch]] = field(default_factory=list)
    failure: str = ""

    def measured(self, accuracy: float) -> Measured:
        """Seconds of each start until the accuracy was reached; none where a start did not reach it."""
        best = min((max(epoch.accuracy for epoch in epochs) for epochs in self.starts), default=0.0)
        if self.failure or best < accuracy:
            return Measured(
                self.entry, failure=self.failure or f"a start reached only {best:.3f}; give it more --epochs"
            )
        times = [next(epoch.seconds for epoch in epochs if epoch.accuracy >= accuracy) for epochs in self.starts]
        return Measured(self.entry, times)

    def cells(self, accuracy: float) -> list[str]:
        """The line under HEADS; the accuracies are the starts' medians."""
        result = self.measured(accuracy)
        times = [f"{result.median:.1f}", f"{result.best:.1f}"] if result.seconds else ["", ""]
        pace = f"{median(epochs[-1].seconds / len(epochs) for epochs in self.starts):.2f}" if self.starts else ""
        curve = " ".join(f"{median(at):.3f}"[1:] for at in zip(*map(accuracies, self.starts), strict=True))
        place = [self.entry.contender.name, str(self.entry.shape)]
        return [*place, *times, str(len(self.starts)), pace, curve, result.failure]


def accuracies(epochs: Sequence[Epoch]) -> list[float]:
    """What a start had learned at the end of each epoch."""
    return [epoch.accuracy for epoch in epochs]


def parse(printed: str, epochs: int) -> list[Epoch]:
    """What a contender printed; StartFailed where it is not one line for each epoch."""
    try:
        found = [Epoch(**json.loads(line)) for line in printed.splitlines()]
    except (ValueError, TypeError):
        found = []
    if len(found) != epochs:
        raise StartFailed(f"wrong output: {printed[-100:]!r}; expected {epochs} JSON lines with seconds and accuracy")
    return found


def train(
    todo: Mapping[Entry, Config], folder: Path, rounds: int, patience: float, say: Callable[[str], None]
) -> list[Training]:
    """Every contender in every round, in turn; one that fails once is not started again."""
    results = [Training(entry) for entry in todo]
    make_shards(next(iter(todo.values())), folder / "shards")
    for number in range(rounds):
        for result in results:
            if not result.failure:
                say(f"round {number + 1} of {rounds}: {result.entry.contender.name} {result.entry.shape}")
                _once_more(result, todo[result.entry], folder, patience)
    return results


def _once_more(result: Training, config: Config, folder: Path, patience: float) -> None:
    write_yaml(config, folder / "config.yaml")
    where = ["--config", str(folder / "config.yaml"), "--shards", str(folder / "shards")]
    try:
        printed = start([sys.executable, *result.entry.contender.command, *where], patience)
        result.starts.append(parse(printed, config.epochs))
    except StartFailed as error:
        result.failure = str(error)


@app.command()
def main(
    data: Annotated[Path, typer.Option(help="cifar-10-binary.tar.gz, packed or unpacked, or a sample in its form.")],
    accuracy: Annotated[float, typer.Option(min=0, max=1, help="Test accuracy to reach (ratio).")] = 0.5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each start.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Examples that each of the two workers takes in a step.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each contender.")] = 3,
    start_limit: Annotated[float, typer.Option(help="Longest that one start may take (seconds).")] = 600.0,
    record: Annotated[bool, typer.Option(help="Append the figures to benchmarks/results.md.")] = False,
) -> None:
    """Seconds of training to an accuracy; contenders take turns, one alive at a time."""
    todo = {entry: settings(data, entry.shape.servers, epochs, batch) for entry in ENTRIES}
    with tempfile.TemporaryDirectory() as folder:
        found = train(todo, Path(folder), rounds, start_limit, Console(stderr=True).print)
    rows = [result.cells(accuracy) for result in found]
    outcomes = [report.target_cells(outcome) for outcome in judge([r.measured(accuracy) for r in found], TARGETS)]
    console = Console()
    report.table(console, f"Seconds of training to a test accuracy of {accuracy:g}", HEADS, rows)
    report.table(console, "Targets: ratios within this run", report.TARGETS, outcomes)
    if record:
        command = ["python", "-m", "benchmarks.ddp", *sys.argv[1:]]
        report.record(command, [(HEADS, rows), (report.TARGETS, outcomes)])


if __name__ == "__main__":
    try:
        app()
    except PacelineError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)

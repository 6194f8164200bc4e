"""[Survey]'s comparison of training with and without servers, with emulated clusters: python -m experiments.survey [--help]"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer

from experiments.options import among
from experiments.policies import base_config
from experiments.processes import SERVERS, Ran, Worked, run
from experiments.survey_pictures import accuracies, speed_ups
from paceline.core.errors import UsageError
from paceline.core.run.scoring import Score
from paceline.core.settings.config import Config
from paceline.core.sync.policy import from_shorthand
from paceline.exits import exits, run_command
from paceline.reproduce.network import UNLIMITED, missing

SLOW_LINK = "slow-link"
CLUSTERS = {"ho": "equal workers", "he1": "one computes 10 times slower", SLOW_LINK: "one has a slow link"}
HEADS = (
    "cluster",
    "policy",
    "workers",
    "seconds",
    "speed-up",
    "test accuracy",
    "seconds to {0:g}",
    "epochs to {0:g}",
    "idle, others",
    "idle, last worker",
    "KB a step, others",
    "KB a step, last worker",
)
MOST = 64
"""Workers; each is a process."""
TIMES = (2, 5, 10, 20, 40)
"""Of the table of accuracy by time (seconds)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the comparison."""

    cluster: str
    policy: str
    workers: int


Found = dict[Cell, Ran]


def main(
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = "bsp,asp,allreduce,dpsgd,adpsgd",
    clusters: Annotated[
        str,
        typer.Option(
            help="Which of ho, he1 [SHAT 4.3] and slow-link, with commas; the first one's the speed-up is of."
        ),
    ] = ",".join(CLUSTERS),
    workers: Annotated[
        str, typer.Option(help="Numbers of workers for the speed-up, with commas; other clusters have the last one.")
    ] = "1,2,4,8",
    task: Annotated[str, typer.Option(help="What is trained.")] = "digits",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 5,
    step: Annotated[float, typer.Option(min=0, help="Emulated computation of an equal worker's step (seconds).")] = 0.1,
    link: Annotated[float, typer.Option(help="Speed of the slow link, both ways (Mbit/s).")] = 1.0,
    accuracy: Annotated[float, typer.Option(min=0, max=1, help="Test accuracy that time is taken to (ratio).")] = 0.85,
    rate: Annotated[float, typer.Option(help="Learning rate of one worker; it grows with the workers.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all runs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("runs/survey"),
    sets: Annotated[list[str] | None, typer.Option("--set", help="Other settings, like optimizer.lr=0.1.")] = None,
) -> None:
    """Prints one line of a Markdown table for each run, then accuracy by epoch and by time, and writes both as PNG."""
    with exits("survey"):
        cells = planned(among(clusters, CLUSTERS, "--clusters"), policies.split(","), _counts(workers))
        if not link > 0:
            raise UsageError(f"--link: got {link:g} Mbit/s, over which nothing can be sent; expected more than 0.")
        configs = {
            cell: config_of(cell, task, epochs, step, [f"optimizer.lr={rate}", f"seed={seed}", *(sets or [])])
            for cell in cells
        }
        cells, has_links = _possible(cells)
        slow = f", slow link {link:g} Mbit/s" if any(cell.cluster == SLOW_LINK for cell in cells) else ""
        print(
            f"task {task}, 2 servers, where the policy has some, {epochs} epochs, rate {rate:g}, seed {seed}, "
            f"step {1000 * step:g} ms{slow}\n"
        )
        _line([head.format(accuracy) for head in HEADS], is_head=True)
        found: Found = {}
        for cell in cells:
            found[cell] = run(configs[cell], rates(cell, link * 1e6) if has_links else None)
            _line(row(cell, found, accuracy))
        _tell(found, epochs, out)


def planned(clusters: Sequence[str], policies: Sequence[str], workers: Sequence[int]) -> list[Cell]:
    """The first cluster with every number of workers, the others with the largest one."""
    first, *others = clusters
    cells = [Cell(first, policy, count) for policy in policies for count in workers]
    return cells + [Cell(cluster, policy, max(workers)) for cluster in others for policy in policies]


def _possible(cells: Sequence[Cell]) -> tuple[list[Cell], bool]:
    """The cells that this machine can run, and whether links are emulated and counted."""
    why = missing()
    if not why:
        return list(cells), True
    print(f"No slow link and no count of bytes: {why}", file=sys.stderr)
    left = [cell for cell in cells if cell.cluster != SLOW_LINK]
    if not left:
        raise UsageError(why)
    return left, False


def config_of(cell: Cell, task: str, epochs: int, step: float, sets: Sequence[str]) -> Config:
    """The settings of a cell's run; a slow link is not the config's."""
    kind = "ho" if cell.cluster == SLOW_LINK else cell.cluster
    policy = from_shorthand(cell.policy)
    return base_config(task, None, None, cell.workers, epochs, step, kind, policy, sets)


def rates(cell: Cell, slow: float) -> dict[str, float]:
    """Every node's link; the slow one is the last worker's (bit/s)."""
    names = [SERVERS, *(f"worker-{rank}" for rank in range(cell.workers))]
    return dict.fromkeys(names, UNLIMITED) | ({names[-1]: slow} if cell.cluster == SLOW_LINK else {})


def row(cell: Cell, found: Found, accuracy: float) -> list[str]:
    """A cell's line under HEADS."""
    ran = found[cell]
    *others, last = ran.workers
    reached, gain = first_with(scored(ran), accuracy), speed_up(cell, found)
    figures = [
        f"{ran.outcome.seconds:.1f}",
        f"{gain:.2f}" if gain else "",
        f"{ran.outcome.metrics['test_accuracy']:.4f}",
    ]
    times = [f"{reached.seconds:.1f}", str(reached.epoch)] if reached else ["", ""]
    shares = [idle(group) for group in (others, [last])]
    sizes = [kilobytes(group) for group in (others, [last])]
    return [cell.cluster.upper(), cell.policy, str(cell.workers), *figures, *times, *shares, *sizes]


def idle(workers: Sequence[Worked]) -> str:
    """Mean share of their steps' time in which they did not compute; nothing where there is no worker."""
    return f"{100 * mean(worked.idle / worked.seconds for worked in workers):.0f} %" if workers else ""


def kilobytes(workers: Sequence[Worked]) -> str:
    """Sent and received per step, mean; nothing where that was not counted."""
    counted = [sum(worked.traffic) / worked.steps for worked in workers if worked.traffic is not None]
    return f"{mean(counted) / 1000:.0f}" if counted else ""


def scored(ran: Ran) -> list[Score]:
    """All scores but the first one, which without servers is of models that have made their first steps already."""
    return [score for score in ran.outcome.history if score.epoch]


def first_with(history: Iterable[Score], accuracy: float) -> Score | None:
    """The first score that has the test accuracy."""
    return next((score for score in history if score.metrics["test_accuracy"] >= accuracy), None)


def speed_up(cell: Cell, found: Found) -> float | None:
    """How many times sooner the same examples are trained than by one worker; None where one alone was not run."""
    alone = found.get(Cell(cell.cluster, cell.policy, 1))
    return alone.outcome.seconds / found[cell].outcome.seconds if alone else None


def by_epoch(history: Iterable[Score], epochs: int) -> list[str]:
    """Test accuracy after each epoch; empty where the evaluator was still busy with an earlier one."""
    found = {score.epoch: score.metrics["test_accuracy"] for score in history}
    return [f"{found[epoch]:.3f}" if epoch in found else "" for epoch in range(1, epochs + 1)]


def by_time(history: Sequence[Score], seconds: float) -> str:
    """Test accuracy of the newest score at a time; with a full stop where the run was over before."""
    newest = [score for score in history if score.seconds <= seconds][-1:]
    return "".join(f"{score.metrics['test_accuracy']:.3f}{'.' if score.final else ''}" for score in newest)


def _tell(found: Found, epochs: int, out: Path) -> None:
    """What all runs gave together."""
    most = max(cell.workers for cell in found)
    compared = {cell: ran for cell, ran in found.items() if cell.workers == most}
    _by_epoch(compared, epochs)
    _by_time(compared)
    out.mkdir(parents=True, exist_ok=True)
    curves = {(cell.cluster, cell.policy): scored(ran) for cell, ran in compared.items()}
    (out / "accuracy.png").write_bytes(accuracies(curves, CLUSTERS))
    gains = {
        (cell.policy, cell.workers): speed_up(cell, found)
        for cell in found
        if cell.cluster == next(iter(found)).cluster
    }
    (out / "speed-up.png").write_bytes(speed_ups(gains))
    print(f"\nFigures: {out / 'accuracy.png'}, {out / 'speed-up.png'}")


def _by_epoch(found: Found, epochs: int) -> None:
    print("\nTest accuracy by epoch\n")
    _line(["cluster", "policy", *map(str, range(1, epochs + 1))], is_head=True)
    for cell, ran in found.items():
        _line([cell.cluster.upper(), cell.policy, *by_epoch(scored(ran), epochs)])


def _by_time(found: Found) -> None:
    print("\nTest accuracy by time of training (a full stop: the run was over)\n")
    _line(["cluster", "policy", *(f"{seconds} s" for seconds in TIMES)], is_head=True)
    for cell, ran in found.items():
        _line([cell.cluster.upper(), cell.policy, *(by_time(scored(ran), seconds) for seconds in TIMES)])


def _line(cells: Sequence[str], is_head: bool = False) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)
    if is_head:
        print("|" + "---|" * len(cells), flush=True)


def _counts(given: str) -> list[int]:
    if not all(count.isdecimal() and 1 <= int(count) <= MOST for count in given.split(",")):
        raise UsageError(f"--workers: got {given!r}; expected numbers from 1 to {MOST} with commas, like 1,2,4,8.")
    return [int(count) for count in given.split(",")]


if __name__ == "__main__":
    run_command(main)

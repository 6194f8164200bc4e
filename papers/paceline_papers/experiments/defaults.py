"""What each policy reaches without settings, compared with plain torch:
python -m paceline_papers.experiments.defaults [--help]"""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from paceline.core.errors import UsageError
from paceline.processes.exits import exits, run_command
from paceline_papers.experiments.defaults_cells import (
    ALL,
    CNN,
    NETWORKS,
    USERS,
    Cell,
    CellStore,
    planned,
    problem,
    run_cell,
)
from paceline_papers.experiments.defaults_table import beside, compact, full, summary
from paceline_papers.experiments.options import among

POLICIES = (
    "bsp",
    "backup",
    "ssp",
    "dssp",
    "asp",
    "downpour",
    "shat",
    "shat_root",
    "ensemble",
    "kbuffered",
    "everyone",
    "rennala",
    "delay_threshold",
    "staleness_aware",
    "dana",
    "easgd",
    "local_sgd",
    "diloco",
    "allreduce",
    "dpsgd",
    "adpsgd",
    "sgp",
    "gosgd",
    "broadcast",
)
OPTIMIZERS = ("sgd", "adam", "adamw")
WORKERS = (1, 2, 4, 8)


def main(
    policies: Annotated[list[str] | None, typer.Argument(help="Policies, like ssp:3; all if not given.")] = None,
    tasks: Annotated[str, typer.Option(help=f"Tasks, with commas; also {', '.join(NETWORKS)}.")] = ",".join(USERS),
    optimizers: Annotated[str, typer.Option(help="Optimizers, with commas.")] = ",".join(OPTIMIZERS),
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = ",".join(map(str, WORKERS)),
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...", min=1)] = 5,
    small: Annotated[bool, typer.Option("--small", help="Three policies, digits, SGD, two workers, one seed.")] = False,
    out: Annotated[Path, typer.Option(help="Where finished runs and tables are kept.")] = Path("runs/defaults"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget finished runs.")] = False,
    processes: Annotated[bool, typer.Option("--processes", help="In real processes, one run after another.")] = False,
    data: Annotated[str | None, typer.Option(help="CIFAR-10, for the task cnn, which --processes alone runs.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs in virtual time side by side.", min=1)] = 2,
) -> None:
    """Runs what is missing, in virtual time, and writes two Markdown tables: every run, and a line a policy. With --processes
    a third one has the same runs in virtual time next to them, as far as these have been run."""
    with exits("experiments.defaults"):
        chosen = list(policies or POLICIES)
        what = (
            among(tasks, ALL if data and processes else USERS | NETWORKS, "--tasks"),
            among(optimizers, OPTIMIZERS, "--optimizers"),
            _counts(workers),
        )
        if small:
            chosen, what, seeds = ["bsp", "ssp", "adpsgd"], (["digits"], ["sgd"], [2]), 1
        cells = list(planned(chosen, *what, seeds, "processes" if processes else "virtual"))
        if data and not processes:
            raise UsageError(f"--data {data}: only the task cnn reads it, in real processes; add --processes.")
        if not cells:
            raise UsageError(f"--optimizers: none of {optimizers} has a rate for {tasks}; see defaults_cells.py.")
        if fresh:
            (out / "runs.jsonl").unlink(missing_ok=True)
        kept = CellStore(out / "runs.jsonl")
        if processes:
            run_processes(cells, kept, out, data or "bundled")
        else:
            run_all(cells, kept, out, jobs)
        found = {cell: kept.found[cell] for cell in cells}
        tables = {"full": full(found), "compact": compact(found)}
        if processes:
            tables["beside"] = beside(cells, kept.found)
        for name, text in tables.items():
            (out / f"{name}.md").write_text(text)
        print(*list(tables.values())[1:], summary(found), sep="\n")


def run_processes(cells: Sequence[Cell], kept: CellStore, out: Path, data: str) -> None:
    """Runs the cells that are not kept yet in real processes; `data`: where CIFAR-10 lies."""
    from paceline_papers.experiments import defaults_processes  # here: it loads the whole product

    for cell in cells:
        if cell not in kept.found:
            print(cell, flush=True)
            path = data if ALL[cell.task] is CNN else "bundled"
            kept.add(cell, defaults_processes.run_cell(cell, out / "shards", path))


def run_all(cells: Sequence[Cell], kept: CellStore, out: Path, jobs: int) -> None:
    """Runs the cells that are not kept yet."""
    missing = [cell for cell in cells if cell not in kept.found]
    print(f"{len(cells)} runs, {len(missing)} of them to do")
    if not missing:
        return
    _prepare()
    for task, workers, seed in sorted({(cell.task, cell.workers, cell.seed) for cell in missing}):
        problem(task, workers, seed, out / "shards")  # its shards, which all processes read
    # not by fork: torch computes no gradient in a process whose parent has computed one
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver"), _prepare) as pool:
        answers = pool.map(partial(run_cell, folder=out / "shards"), missing, chunksize=4)
        for number, (cell, found) in enumerate(zip(missing, answers, strict=True), 1):
            kept.add(cell, found)
            if number % 200 == 0:
                print(f"{number} of {len(missing)}", flush=True)


def _prepare() -> None:
    torch.set_num_threads(1)


def _counts(given: str) -> list[int]:
    if not all(count.isdecimal() and int(count) for count in given.split(",")):
        raise UsageError(f"--workers: got {given!r}; expected numbers from 1 on with commas, like 1,2,4,8.")
    return [int(count) for count in given.split(",")]


if __name__ == "__main__":
    run_command(main)

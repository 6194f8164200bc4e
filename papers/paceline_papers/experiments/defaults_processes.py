"""Cells of defaults.py in real processes: a sample of those in virtual time, to see both agree, and networks that
need torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.core.settings.config import Config
from paceline_papers.experiments.defaults_cells import (
    ALL,
    TORCH,
    Cell,
    CellResult,
    CellStore,
    config_of,
    plain,
    torch_cells,
    user_of,
)
from paceline_papers.experiments.defaults_table import beside, full
from paceline_papers.reproduce.processes import run

SAMPLE = ("bsp", "ssp", "asp", "shat", "kbuffered", "local_sgd", "easgd", "adpsgd")
POLICIES = ("bsp", "ssp", "asp", "shat", "kbuffered", "local_sgd")
TASKS = ("cnn", "transformer")
STEP = 0.005
"""What a slow worker's pauses are multiples of (seconds)."""


def sample(kept: CellStore, seeds: int) -> str:
    """Digits with four workers, in processes and in virtual time: a Markdown table. Runs what is missing, and shows what
    was run in virtual time before."""
    cells = [
        Cell(seed, "digits", optimizer, 4, cluster, policy, "processes")
        for seed in range(seeds)
        for optimizer in ("sgd", "adam")
        for policy in SAMPLE
        for cluster in ("equal", "slow")
    ]
    for cell in cells:
        if cell not in kept.found:
            kept.add(cell, in_processes(cell, "bundled"))
    return beside(cells, kept.found)


def networks(kept: CellStore, data: str, seeds: int, folder: Path) -> str:
    """A CNN on the CIFAR-10 data at `data`, and a transformer, compared with plain torch: a Markdown table."""
    cells = list(planned(seeds))
    for cell in cells:
        if cell not in kept.found:
            path = data if cell.task == "cnn" else "bundled"
            is_torch = cell.policy.startswith(TORCH)
            kept.add(cell, CellResult(plain(cell, folder, path)) if is_torch else in_processes(cell, path))
    return full({cell: kept.found[cell] for cell in cells})


def planned(seeds: int, policies: Sequence[str] = POLICIES, workers: Sequence[int] = (2, 4)) -> Iterator[Cell]:
    """The cells of the networks."""
    for seed in range(seeds):
        for task in TASKS:
            for optimizer in ALL[task].rates:
                yield from torch_cells(task, optimizer, seed)
                for count in workers:
                    yield from (Cell(seed, task, optimizer, count, "equal", policy, "processes") for policy in policies)


def in_processes(cell: Cell, data: str) -> CellResult:
    """What a real run of the cell gives."""
    config: Config = config_of(cell, data).model_copy(update={"nominal_step": STEP})
    print(
        f"{cell.task}, {cell.optimizer}, {cell.policy}, {cell.workers} workers, {cell.cluster}, seed {cell.seed}",
        flush=True,
    )
    return CellResult(run(config).outcome.metrics[f"test_{user_of(cell).metric}"])

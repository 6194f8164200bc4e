"""One cell of defaults.py in real processes."""

from pathlib import Path

from paceline.core.errors import ConfigError
from paceline_papers.experiments.defaults_cells import TORCH, Cell, CellResult, config_of, plain, user_of
from paceline_papers.reproduce.processes import run

STEP = 0.005
"""What a slow worker's pauses are multiples of (seconds)."""


def run_cell(cell: Cell, folder: Path, data: str) -> CellResult:
    """Runs a cell; plain torch's shards are kept in `folder`. `data`: as in the config."""
    if cell.policy.startswith(TORCH):
        return CellResult(plain(cell, folder, data))
    try:
        config = config_of(cell, data).model_copy(update={"nominal_step": STEP})
    except ConfigError as error:
        return CellResult(None, str(error))
    return CellResult(run(config).outcome.metrics[f"test_{user_of(cell).metric}"])

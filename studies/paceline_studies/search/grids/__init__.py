"""Grids of papers, the YAML files here. Only their names: `paceline --help` shows them and needs nothing else."""

from pathlib import Path

GRIDS = Path(__file__).parent


def paper_grids() -> list[str]:
    """Returns the names of the grids."""
    return sorted(path.stem for path in GRIDS.glob("*.yaml"))

"""Settings and grids of papers, the YAML files here. Only their names: `paceline --help` shows them and needs nothing else."""

from pathlib import Path

PRESETS = Path(__file__).parent
GRIDS = PRESETS / "grids"


def presets() -> list[str]:
    """The names of the settings that reproduce a paper's training."""
    return _names(PRESETS)


def paper_grids() -> list[str]:
    """The names of the grids that papers have."""
    return _names(GRIDS)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))

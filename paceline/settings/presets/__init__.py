"""Settings of papers, the YAML files here. Only their names: `paceline --help` shows them and needs nothing else."""

from pathlib import Path

PRESETS = Path(__file__).parent


def presets() -> list[str]:
    """The names of the settings that reproduce a paper's training."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))

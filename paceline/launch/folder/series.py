"""Runs that differ in their seed alone: NAME-1, NAME-2 and so on."""

from pathlib import Path

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import RUN, Config
from paceline.launch.folder.run_folder import RUNS, RunFolder, find_run, new_name


def series(config: Config, times: int) -> list[Config]:
    """The config of each run: its name and seed. ConfigError where a name gets too long."""
    base = config.run or new_name(config)
    found = [
        config.model_copy(update={"run": f"{base}-{number}", "seed": config.seed + number - 1})
        for number in range(1, times + 1)
    ]
    if not RUN.fullmatch(str(found[-1].run)):
        raise ConfigError(
            f"--run {base}: with '-{times}' added, the name is longer than 63 letters. Give a shorter one."
        )
    return found


def find_series(name: str, runs: Path = RUNS) -> list[RunFolder]:
    """The run of that name, or path of its folder; otherwise all runs NAME-1, NAME-2 and so on. UsageError: there are none."""
    try:
        return [find_run(name, runs)]
    except UsageError:
        place = runs / name
        ends = {file.parent: file.parent.name.removeprefix(f"{place.name}-") for file in _configs(place)}
        numbered = sorted((int(end), path) for path, end in ends.items() if end.isdecimal())
        if not numbered:
            raise
        return [RunFolder(path).checked() for _, path in numbered]


def _configs(place: Path) -> list[Path]:
    return [
        path / "config.yaml"
        for path in place.parent.glob("*")
        if path.name.startswith(f"{place.name}-") and (path / "config.yaml").is_file()
    ]

"""A run that is resumed by the config.yaml of its folder, wherever the folder is now."""

import os
from collections.abc import Callable
from pathlib import Path

from paceline.base.own_files import is_own
from paceline.core.errors import UsageError
from paceline.launch.folder.run_folder import RUNS, RunFolder
from paceline.launch.settings.read_config import MISSING
from paceline.settings.load_settings import read_yaml
from paceline.settings.own_extensions import KEPT, own_names


def resumed(what: str | None, say: Callable[[str], None]) -> tuple[str | None, Path]:
    """The config's path, and the folder around the run's folder, where `what` is the config.yaml of such a folder; if not,
    `what` as it is, and `runs`. The working folder becomes the one that the run's relative paths count from. Nothing is
    changed where the folder is refused: TooNew where a newer release has written it, ConfigError where its settings
    can't be read or the run is going on."""
    folder = None if what is None or Path(what).name != "config.yaml" else RunFolder(Path(what).resolve().parent)
    if folder is None or not folder.facts():
        return what, RUNS
    home = home_of(folder.checked())
    folder.settings()
    _settle(folder, home)
    _renew(folder, home, say)
    if home != Path.cwd():
        say(f"{folder.config} is of a run whose relative paths count from {home}; it goes on in {folder.path}.")
        os.chdir(home)
    usual = home / RUNS == folder.path.parent
    return str(folder.config), RUNS if usual else folder.path.parent


def kept_config(run: str | None) -> str:
    """The config.yaml of the run of that name here, so that its name alone resumes it. UsageError: there is no such run, or no
    name was given."""
    if run is None:
        raise UsageError(MISSING)
    config = RunFolder(RUNS / run).config
    if not config.exists():
        raise UsageError(f"{MISSING} --run {run} without a task resumes an existing run, and there is no {config}.")
    return str(config)


def home_of(folder: RunFolder) -> Path:
    """The folder that relative paths of a run's settings count from: the one that holds `runs`, or where the run was started if
    its folder was moved from there; of several the first one that has the task's file."""
    task = str(read_yaml(folder.config).get("task", ""))
    usual = [folder.path.parent.parent] if folder.path.parent.name == RUNS.name else []
    told = [Path(home) for home in [folder.facts().get("home")] if home and Path(home).is_dir()]
    places = [*usual, *told, Path.cwd()]
    return next((place for place in places if not is_own(task) or (place / task).is_file()), places[0])


def _renew(folder: RunFolder, home: Path, say: Callable[[str], None]) -> None:
    """The run goes on with the users' files of policies and the like as they are now."""
    kept = folder.path / KEPT
    if kept.is_dir() and not folder.facts().get("finished"):
        files = [home / name for name in own_names(folder.settings()).values()]
        with folder.locked():
            for changed in folder.keep_own(files):
                say(changed)


def _settle(folder: RunFolder, home: Path) -> None:
    """The settings follow where the folder was given another name, or lost its task's file, of which it has a copy. ConfigError
    where the servers' files have the old name."""
    settings = read_yaml(folder.config)
    facts, before = folder.facts(), str(settings.get("run") or folder.name)
    if not facts.get("finished"):
        folder.check_name(before)
    task = str(settings.get("task", ""))
    now = settings | {"run": folder.name}
    if is_own(task) and not (home / task).is_file() and folder.kept_task(task).is_file():
        now["task"] = str(folder.kept_task(task))
    if now != settings:
        with folder.locked():
            if before != folder.name:
                folder.write_facts(called=facts.get("called", before))
            folder.rewrite(now)

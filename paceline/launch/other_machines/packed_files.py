"""What a machine needs of the head's files to run its processes: the run's settings, and the script or task with its folder."""

import fnmatch
import io
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from paceline.base.own_files import is_own, package_of
from paceline.core.errors import ConfigError, DataError, UsageError
from paceline.core.settings.config import Config
from paceline.data.plain_tar import plain_members
from paceline.settings.load_settings import read_yaml
from paceline.settings.own_extensions import KEPT

MOST = 64 << 20
"""Most that a script's folder may hold (bytes)."""
MOST_FILES = 20_000
MOST_SENT = 2 * MOST
"""Largest tar that a machine takes from its head (bytes), and most that it holds."""
_PIECE = 1 << 20
LEFT_OUT = ".pacelineignore"
"""A file in the script's folder: a pattern a line of what is not sent."""
NEVER = ("__pycache__", ".*", "venv", "node_modules", "runs", "searches", "*.pyc", "*.egg-info")
"""Names that are never sent."""
SETTINGS, GIVEN = "config.yaml", "given.yaml"
"""As in a run's folder; the second one is a script's."""
_FOLDER = "folder"


class _Entry(NamedTuple):
    path: Path
    name: str
    """Below the folder."""
    size: int


def packed(config: Config, run_folder: Path) -> bytes:
    """One compressed tar. UsageError: a folder is too large to be sent; ConfigError: a file can't be read."""
    given = run_folder / GIVEN
    settings = {SETTINGS: config.model_dump(mode="json")} | ({GIVEN: read_yaml(given)} if given.exists() else {})
    folders: dict[Path, str] = {}
    for each in settings.values():
        task = each.get("task")
        if task and is_own(task):
            file = Path(task).resolve()
            package, root = package_of(file)
            top = root / package.partition(".")[0]  # the file's folder, or the whole package that it is in
            place = f"{_FOLDER}-{len(folders)}"
            inside = folders.setdefault(top, f"{place}/{top.name}" if package else place)
            each["task"] = f"{inside}/{file.relative_to(top).as_posix()}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for name, each in settings.items():
            _add(tar, name, yaml.safe_dump(each, sort_keys=False).encode())
        for kept in sorted((run_folder / KEPT).glob("*.py")):
            _add(tar, f"{KEPT}/{kept.name}", kept.read_bytes())
        for folder, inside in folders.items():
            for found in _chosen(folder):
                try:
                    _add(tar, f"{inside}/{found.name}", found.path.read_bytes(), found.path.stat().st_mode & 0o777)
                except OSError as error:
                    raise ConfigError(
                        f"Can't read {found.path}, which other machines need: {error.strerror}."
                    ) from error
    return buffer.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Writes what `packed` gave into an empty folder; settings name the files by their new places. DataError: it is none, or
    it would write elsewhere or too much; ConfigError: its settings can't be read."""

    def refuse(why: str) -> DataError:
        return DataError(f"The tar that the head sent {why}; nothing was started.")

    try:
        for member, sent in plain_members(io.BytesIO(content), MOST_SENT, 2 * MOST_FILES, refuse):
            if sent is None:
                raise refuse(f"has a folder {member.name!r:.300}")
            place = folder / member.name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                shutil.copyfileobj(sent, out, _PIECE)
            place.chmod(member.mode & 0o755 | 0o600)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # tarfile lets others through than its own
        raise DataError(f"The files that the head sent can't be unpacked in {folder}: {error}.") from error
    for file in (folder / SETTINGS, folder / GIVEN):
        if file.is_file():
            settings = read_yaml(file)
            task = settings.get("task")
            if isinstance(task, str) and task.startswith(f"{_FOLDER}-") and (folder / task).is_file():
                settings["task"] = str(folder / task)
            file.write_text(yaml.safe_dump(settings, sort_keys=False))


def script_folder(config: Config, otherwise: Path) -> Path:
    """Where processes of a host work: next to the script, or the task's file."""
    return Path(config.task).parent if is_own(config.task) else otherwise


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o600) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = mode
    tar.addfile(info, io.BytesIO(content))


def _chosen(folder: Path) -> list[_Entry]:
    """The folder's files without those that are left out. UsageError: too many, or too large."""
    found, sizes = list[_Entry](), Counter[str]()
    for one in _files(folder, _patterns(folder)):
        found.append(one)
        top, below, _ = one.name.partition("/")
        sizes[top + below] += one.size
        if len(found) > MOST_FILES:
            break
    whole = sum(sizes.values())
    if whole <= MOST and len(found) <= MOST_FILES:
        return found
    largest = ", ".join(f"{name} ({_mib(size)})" for name, size in sizes.most_common(3))
    more = f"more than {MOST_FILES:,} files" if len(found) > MOST_FILES else _mib(whole)
    raise UsageError(
        f"The script's folder {folder} holds {more}; at most {_mib(MOST)} goes to other machines. Largest: "
        f"{largest}. List what they don't need in {folder / LEFT_OUT}, one pattern a line, like data/ or *.pt; or "
        "put the script into its own folder."
    )


def _files(folder: Path, patterns: list[str]) -> Iterator[_Entry]:
    for here, folders, names in os.walk(folder):
        below = Path(here).relative_to(folder)
        folders[:] = sorted(name for name in folders if not _is_left_out(below / name, patterns))
        for name in sorted(names):
            path = Path(here) / name
            if not _is_left_out(below / name, patterns) and path.is_file():
                yield _Entry(path, (below / name).as_posix(), path.stat().st_size)


def _patterns(folder: Path) -> list[str]:
    file = folder / LEFT_OUT
    lines = file.read_text().splitlines() if file.is_file() else []
    return [line.strip().strip("/") for line in lines if line.strip() and not line.startswith("#")]


def _is_left_out(below: Path, patterns: list[str]) -> bool:
    if any(fnmatch.fnmatch(below.name, pattern) for pattern in NEVER):
        return True
    return any(fnmatch.fnmatch(below.name, one) or fnmatch.fnmatch(below.as_posix(), one) for one in patterns)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"

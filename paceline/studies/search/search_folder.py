"""The folder of a search: what it is a search of, its points' runs, the shards that they share, and the results."""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from paceline.base.own_files import is_own
from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DiskError
from paceline.core.settings.config import Config
from paceline.core.stored_format import check_format
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder, held, open_run
from paceline.settings.load_settings import differences
from paceline.settings.own_extensions import own_names

FORMAT = 1
"""Of search.json and what it stands for; a search that names none has the first one."""
CHOSEN = "chosen.json"
SEARCHES = Path("searches")
"""Under the working folder; each search that was given no other folder has one in it."""


F = TypeVar("F", bound="SearchFolder")


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """Names the files of one search."""

    path: Path
    kind: ClassVar[str] = "search"
    manifest_name: ClassVar[str] = "search.json"
    runs_name: ClassVar[str] = "points"

    @property
    def manifest(self) -> Path:
        return self.path / self.manifest_name

    @property
    def points(self) -> Path:
        return self.path / self.runs_name

    @property
    def _chosen(self) -> Path:
        return self.path / CHOSEN

    def chosen(self) -> list[dict[str, Any]]:
        """The points that a guided search has chosen so far. ConfigError where the file is damaged."""
        if not self._chosen.exists():
            return []
        try:
            return [dict(point) for point in json.loads(self._chosen.read_text())]
        except (ValueError, TypeError) as error:
            raise ConfigError(f"Can't read {self._chosen}: {error}. Start the search over with --fresh.") from error

    def write_chosen(self, points: Sequence[Mapping[str, Any]]) -> None:
        """DiskError where it can't be written."""
        self.write(self._chosen, "the points", (json.dumps(list(points)) + "\n").encode())

    def run(self, name: str) -> RunFolder:
        """The folder of one of its runs."""
        return RunFolder(self.points / name)

    def shards(self, config: Config) -> Path:
        """Where the shards of this run are; equal for runs that differ only in what shards don't depend on."""
        what = (config.task, config.model, config.data, config.data.shards or config.workers)
        key = repr((*what, config.svm.positive, config.seed))
        return self.path / "shards" / hashlib.sha256(key.encode()).hexdigest()[:12]

    def start_over(self, config: Config, has_shards: bool = True) -> RunFolder:
        """An empty folder for the run that the config names, with a link to its shards if it has some."""
        folder, _ = open_run(config, fresh=True, runs=self.points)
        if has_shards:
            self.link_shards(config)
        return folder

    def link_shards(self, config: Config) -> None:
        """The shards that the run shares with others are its own, too."""
        self.run(str(config.run)).shards.symlink_to(Path("../../shards") / self.shards(config).name)

    @staticmethod
    def write(path: Path, what: str, content: bytes) -> None:
        """A reader sees the old file or the whole new one. DiskError where it can't be written."""
        with replacing(path, what) as temporary:
            temporary.write_bytes(content)

    def locked(self) -> AbstractContextManager[None]:
        """Only one process drives a search; ConfigError for the second one."""
        return held(
            self.path,
            lambda: (
                f"The {self.kind} in {self.path} is going on already; wait for its end, or give --out another folder."
            ),
        )


def content_of(configs: Iterable[Config], without: Collection[str] = ()) -> dict[str, dict[str, str]]:
    """For `what` in `open_search`: a checksum of each file of the user's that these settings name, but for the keys `without`;
    nothing where there is none. Runs of other code must not be compared as if they were alike."""
    named = {
        name
        for config in configs
        for key, name in {"task": config.task, **own_names(config)}.items()
        if is_own(name) and key not in without
    }
    found = {name: digest(Path(name).read_bytes()) for name in sorted(named) if Path(name).is_file()}
    return {"content": found} if found else {}


def digest(content: bytes) -> str:
    """A short checksum."""
    return hashlib.sha256(content).hexdigest()[:8]


@contextmanager
def open_search(folder: F, what: Mapping[str, Any], fresh: bool) -> Iterator[F]:
    """The folder, new or to be resumed, held until the block ends; `what` describes the search (JSON values). ConfigError
    where the folder holds another search, or something else; `fresh` empties it first. DiskError: it can't be written."""
    path = folder.path
    if path.exists() and not folder.manifest.exists() and not _is_empty(path):
        raise ConfigError(f"{path} exists, but is not the folder of a {folder.kind}; give --out another one.")
    with _disk_errors(folder):
        make_private(path)
    with folder.locked():
        with _disk_errors(folder):
            if fresh:
                _empty(folder)
            if folder.manifest.exists():
                _check_same(folder, what)
            else:
                folder.write(
                    folder.manifest,
                    f"what it is a {folder.kind} of",
                    (json.dumps({"format": FORMAT, **what}, indent=1) + "\n").encode(),
                )
        yield folder


@contextmanager
def _disk_errors(folder: SearchFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"Can't use the {folder.kind} folder {folder.path}: {error.strerror}. Is the disk full, or may this user not write "
            "there?"
        ) from error


def _is_empty(path: Path) -> bool:
    return path.is_dir() and all(file.name.startswith(".") for file in path.iterdir())


def _empty(folder: SearchFolder) -> None:
    for part in (folder.points, folder.path / "shards"):
        if part.exists():
            shutil.rmtree(part)
    for file in (folder.manifest, folder.path / CHOSEN, *folder.path.glob("results.*")):
        file.unlink(missing_ok=True)


def _check_same(folder: SearchFolder, what: Mapping[str, Any]) -> None:
    try:
        before = json.loads(folder.manifest.read_text())
        check_format(
            str(folder.manifest), before.pop("format", FORMAT), FORMAT, f"start the {folder.kind} over with --fresh"
        )
        found = differences(before, json.loads(json.dumps(what)))
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"Can't read {folder.manifest}: {error}. Start the {folder.kind} over with --fresh."
        ) from error
    if found:
        listed = "".join(f"\n    {line}" for line in found)
        raise ConfigError(
            f"The {folder.kind} in {folder.path} was started with other settings:{listed}\nTo resume it, give the old "
            "settings. To keep both, give another folder (--out). To start it over, add --fresh."
        )

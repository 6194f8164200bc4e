"""The folder of many runs, of a search or a comparison: the runs, the shards that they share, and what a finished one gave."""

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.base.own_files import is_own
from paceline.base.private import make_private
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ConfigError, DiskError
from paceline.core.settings.config import Config
from paceline.data.manifest import read_manifest
from paceline.data.shards import is_there
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder, held, open_run
from paceline.settings.load_settings import differences
from paceline.settings.own_extensions import own_names

SEARCHES = Path("searches")
"""Under the working folder; each search that was given no other folder has one in it."""
OLD = ("search.json", "chosen.json")
"""What an earlier Paceline kept a search in."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How one finished run ended."""

    metrics: dict[str, float]
    """Of the final version."""
    epochs: float
    """That it trained until it stopped."""
    seconds: float
    """Of training."""
    measure: str
    """What the run is judged by, like 'max accuracy'."""
    warnings: list[dict[str, Any]]
    """What still went wrong at its end."""
    train_examples: int | None
    """Of an epoch; None where nobody has noted it."""


def measured(folder: RunFolder) -> Measured | None:
    """What the run in the folder gave; None unless it is finished."""
    facts = folder.facts()
    if not facts.get("finished"):
        return None
    shards = folder.shards
    return Measured(
        folder.final_metrics(),
        float(folder.last_status().get("epoch", 0.0)),
        float(facts.get("seconds", 0.0)),
        facts.get("measure", ""),
        [each for each in facts.get("warnings", []) if not RunWarning(**each).passed],
        facts.get("train_examples") or (read_manifest(shards).train_examples if is_there(shards) else None),
    )


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """Names the files of one search."""

    path: Path
    kind: ClassVar[str] = "search"
    manifest_name: ClassVar[str] = "study.log"
    runs_name: ClassVar[str] = "points"

    @property
    def manifest(self) -> Path:
        """What says that this is such a folder, and what it is about."""
        return self.path / self.manifest_name

    @property
    def runs(self) -> Path:
        return self.path / self.runs_name

    def run(self, name: str) -> RunFolder:
        """The folder of one of its runs."""
        return RunFolder(self.runs / name)

    def unfinished(self, configs: Iterable[Config]) -> list[Config]:
        """Those whose runs are left to do."""
        return [config for config in configs if measured(self.run(str(config.run))) is None]

    def shards(self, config: Config) -> Path:
        """Where the shards of this run are; equal for runs that differ only in what shards don't depend on."""
        what = (config.task, config.model, config.data, config.data.shards or config.workers)
        key = repr((*what, config.svm.positive, config.seed))
        return self.path / "shards" / hashlib.sha256(key.encode()).hexdigest()[:12]

    def start_over(self, config: Config) -> RunFolder:
        """An empty folder for the run that the config names, with a link to the shards that it shares with others."""
        # its folder alone is resumed, and runs of other searches have the same name
        checkpoint = config.checkpoint.model_copy(update={"at": None})
        folder, _ = open_run(config.model_copy(update={"checkpoint": checkpoint}), fresh=True, runs=self.runs)
        folder.shards.symlink_to(Path("../../shards") / self.shards(config).name)
        return folder

    def refuse_other(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        """ConfigError where this is not what the folder is about."""
        if found := differences(before, now):
            listed = "".join(f"\n    {line}" for line in found)
            raise ConfigError(
                f"The {self.kind} in {self.path} was started with other settings:{listed}\nTo resume it, give the old "
                "settings. To keep both, give another folder (--out). To start it over, add --fresh."
            )

    def write(self, name: str, content: bytes) -> None:
        """A reader sees the old file or the whole new one. DiskError where it can't be written."""
        with replacing(self.path / name, name) as temporary:
            temporary.write_bytes(content)

    def damaged(self, error: Exception) -> ConfigError:
        """What to raise where the manifest can't be read."""
        return ConfigError(f"Can't read {self.manifest}: {error}. Start the {self.kind} over with --fresh.")


@contextmanager
def opened(folder: SearchFolder, fresh: bool) -> Iterator[SearchFolder]:
    """The folder, new or to be resumed, held until the block ends; `fresh` empties it first. ConfigError where it holds
    something else, or is another process's. DiskError: it can't be written."""
    path = folder.path
    is_old = folder.kind == "search" and (path / OLD[0]).exists()
    if is_old and not fresh:
        raise ConfigError(
            f"{path} holds a search of an earlier Paceline (there is a {OLD[0]}), which this one can't continue. Its results "
            "and runs stay readable: give --out another folder. --fresh deletes them and starts over."
        )
    if not is_old and path.exists() and not folder.manifest.exists() and not _is_empty(path):
        raise ConfigError(f"{path} exists, but is not the folder of a {folder.kind}; give --out another one.")

    busy = f"The {folder.kind} in {path} is going on already; wait for its end, or give --out another folder."
    with ExitStack() as stack:
        try:
            make_private(path)
            stack.enter_context(held(path, lambda: busy))
            if fresh:
                _empty(folder)
        except OSError as error:
            raise DiskError(
                f"Can't use the {folder.kind} folder {path}: {error.strerror}. Is the disk full, or may this user not write "
                "there?"
            ) from error
        yield folder


def content_of(configs: Iterable[Config], without: Collection[str] = ()) -> dict[str, Any]:
    """For what a folder is about: a checksum of each file of the user's that these settings name, but for the keys `without`;
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


def _is_empty(path: Path) -> bool:
    return path.is_dir() and all(file.name.startswith(".") for file in path.iterdir())


def _empty(folder: SearchFolder) -> None:
    for part in (folder.runs, folder.path / "shards"):
        if part.exists():
            shutil.rmtree(part)
    for file in (folder.manifest, *(folder.path / name for name in OLD), *folder.path.glob("results.*")):
        file.unlink(missing_ok=True)

"""The file of a recipe's finished runs: a line of JSON each, behind a line that says what they are of."""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DiskError
from paceline.launch.folder.run_folder import held
from paceline.launch.this_machine.processors import DEVICES, visible_gpus
from paceline_papers.reproduce.recipe import Figures

FORMAT = 1
"""Of the file. Raised when older files can't be read any more."""
RunKey = tuple[str, int]
"""Row and seed."""


def other_runs(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What a file of runs holds, and what a command makes that can't use them: a sentence without its subject."""
    seen, makes = (", ".join(f"{key} {value}" for key, value in each.items()) for each in (found, wanted))
    return f"holds runs of {seen}; this command makes {makes}."


def make_folder(path: Path) -> None:
    """Of results, if it does not exist. DiskError where that is not possible."""
    try:
        make_private(path)
    except OSError as error:
        raise DiskError(f"Can't use {path}: {error.strerror}. Give --out a folder to write in.") from error


class RunStore:
    """Finished runs. Where the file is another recipe's, or of another version of it, there are none."""

    def __init__(self, file: Path, what: Mapping[str, Any], runs: Path | None = None) -> None:
        """`what`: the recipe's name, size and version; it is written at the first run, with the day. `runs`: the folder of
        all runs, where each has one."""
        self._file = file
        self._aside = f"Move {'the file' if runs is None else f'the file and {runs}'} away, or give another --out."
        self._what = {"format": FORMAT, **what}
        self.about: dict[str, Any] = {}
        """What the file says of itself; nothing before the first run."""
        self.refusal = ""
        """Why the file can't be used, in words; empty where it can."""
        self.seconds: dict[RunKey, float] = {}
        self.dates: dict[RunKey, str] = {}
        """When each run was made, like 2026-11-27."""
        self._figures: dict[RunKey, Figures] = {}
        self._size = 0
        """Of the file, as it is known here (bytes)."""
        self.follow()

    def follow(self) -> None:
        """Reads what another artefact with the same runs has added since."""
        if self._file.exists() and self._file.stat().st_size != self._size:
            self._read()

    def __contains__(self, key: RunKey) -> bool:
        return key in self._figures

    def check(self) -> None:
        """ConfigError where the file can't be used."""
        if self.refusal:
            raise ConfigError(self.refusal)

    def locked(self) -> AbstractContextManager[None]:
        """Only one command adds runs; ConfigError for the second one."""
        make_folder(self._file.parent)
        return held(
            self._file.parent,
            lambda: (
                f"Another command is making the runs in {self._file.parent}; wait for its end, or give another --out."
            ),
        )

    @property
    def figures(self) -> Mapping[RunKey, Figures]:
        return self._figures

    def add(self, key: RunKey, figures: Figures, seconds: float) -> None:
        """Keeps a run: from now on it is not repeated, and neither is what others have kept meanwhile."""
        self.follow()
        self.check()
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        if not self.about:
            self.about = {**self._what, "date": today, "cores": os.cpu_count()}
            if gpus := visible_gpus(os.environ, DEVICES):
                self.about["gpus"] = len(gpus)
            make_private(self._file.parent)
            self._size = self._file.write_text(json.dumps(self.about) + "\n")
        elif self._size != self._file.stat().st_size:  # who was killed while it wrote left half a line
            os.truncate(self._file, self._size)
        line = {"row": key[0], "seed": key[1], "date": today, "seconds": round(seconds, 3), "figures": figures}
        with self._file.open("a") as file:
            self._size += file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def _read(self) -> None:
        text = self._file.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        try:
            about, *lines = map(json.loads, whole.splitlines())
            found = {key: about.get(key) for key in self._what}
            if found != self._what:
                self.refusal = f"{self._file} {other_runs(found, self._what)} {self._aside}"
                return
            self.about = about
            for line in lines:
                self._take(line)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            self.refusal = f"{self._file} can't be read ({type(error).__name__}: {error}). {self._aside}"
            self.about, self._figures = {}, {}
            return
        self._size = len(whole)

    def _take(self, line: Mapping[str, Any]) -> None:
        key = line["row"], line["seed"]
        self._figures[key] = line["figures"]
        self.seconds[key] = line["seconds"]
        self.dates[key] = line.get("date", self.about["date"])

"""A server's folder: its lock, term and snapshots, and the chief's run state. A half-written file is never read as
complete: temporary file, fsync, rename, folder fsync, and the manifest with the checksum last."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from paceline.core.errors import ConfigError, DataError, DiskError, TooNew
from paceline.core.slice.plan import Range, SlicePlan
from paceline.core.slice.state import SliceState
from paceline.core.stored_format import check_format

_MANIFEST = "snapshot-{:012d}.json"
FORMAT = 1
"""Format of the folder's files: each JSON file carries it, since files of an older release may lie beside newer ones. A
release raises it with any change that an older one would misread (docs/understand/releases.md)."""


class StateFolder:
    """Owns the folder while the process lives. Calls may block on the disk; use from one thread at a time, except that
    `save_run` and `save_snapshot` may overlap."""

    def __init__(self, folder: Path, keep: int, say: Callable[..., None]) -> None:
        self._folder = folder
        self._keep = keep
        self._say = say
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / "lock", "w")  # noqa: SIM115 - held as long as the process lives
        except OSError as error:
            raise DiskError(
                f"Can't use the folder {folder}: {error.strerror}. Give --folder a place to write."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"Another server uses {folder}. Stop it, or give this one a --folder of its own."
            ) from error
        self.term = self._read("term.json", {"term": 0})["term"] + 1
        self._write("term.json", {"term": self.term})
        self._sweep()

    def save_snapshot(self, plan: SlicePlan, state: SliceState) -> None:
        """Saves a state and keeps only the newest `keep`. A DiskError leaves the older ones unchanged."""
        try:
            self._save(1 + max(self._numbers(), default=0), plan, state)
            for old in sorted(self._numbers())[: -self._keep]:
                (self._folder / _MANIFEST.format(old)).unlink(missing_ok=True)
                self._data(old).unlink(missing_ok=True)
        except (OSError, SafetensorError) as error:
            raise DiskError(f"Can't write a snapshot to {self._folder}: {error}. The older ones are intact.") from error

    def newest_snapshot(self) -> tuple[SlicePlan, SliceState] | None:
        """The newest intact state, None before there is one; says aloud which damaged ones it passes over. DataError
        where all are damaged: starting from nothing would lose the run in silence."""
        numbers = sorted(self._numbers(), reverse=True)
        for number in numbers:
            try:
                return self._load(number)
            except TooNew:
                raise
            except (DataError, OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
                self._say("snapshot is damaged, trying the one before", snapshot=number, why=str(error))
        if numbers:
            raise DataError(
                f"None of the {len(numbers)} snapshots in {self._folder} is intact. Bring one back, or start the run "
                "over with an empty folder."
            )
        return None

    def close(self) -> None:
        """Releases the folder for another process."""
        self._lock.close()

    def save_run(self, state: dict[str, Any]) -> None:
        """Saves the chief's run state."""
        self._write("run.json", state)

    def check_settings(self, settings: Sequence[str], defaults: Collection[str] = ()) -> None:
        """Keeps what the run's processes agree on, as 'key=value'. ConfigError where there are snapshots of other settings. A
        setting that they don't name is of a later release than theirs; where it is among the `defaults` it changes nothing."""
        found = self._read("settings.json", {"settings": list(settings)})
        before: list[str] = found["settings"] if isinstance(found, dict) else list(settings)  # a list before format 1
        named = {line.partition("=")[0] for line in before}
        new = {line for line in defaults if line.partition("=")[0] not in named}
        if self._numbers() and (differing := sorted(set(before) ^ set(settings) - new)):
            raise ConfigError(
                f"{self._folder} holds a run with other settings: {'; '.join(differing)} (before and now). Set them back, or "
                "start a new run with empty folders; paceline set changes the policy of a run."
            )
        self._write("settings.json", {"settings": list(settings)})

    def load_run(self) -> dict[str, Any] | None:
        """The chief's run state; None if there is none yet."""
        state: dict[str, Any] | None = self._read("run.json", None)
        return state

    def _save(self, number: int, plan: SlicePlan, state: SliceState) -> None:
        data = self._data(number)
        temporary = data.with_suffix(".tmp")
        arrays = {"weights": state.weights} | {f"slot{index}": slot for index, slot in enumerate(state.slots)}
        arrays |= {name: more for name, more in (("gathered", state.gathered), ("lag", state.lag)) if more is not None}
        try:
            save_file(arrays, temporary)
            digest = _digest(temporary)
            _sync(temporary)
            os.replace(temporary, data)
        finally:
            temporary.unlink(missing_ok=True)
        plan_facts = {"shapes": plan.shapes, "strategy": plan.strategy, "slices": _plain(plan.slices)}
        manifest = {"sha256": digest, "bytes": data.stat().st_size, "plan": plan_facts, "table": state.table}
        self._write(_MANIFEST.format(number), manifest)

    def _sweep(self) -> None:
        """Removes the remains of an interrupted write: temporary files, and data without its manifest."""
        whole = {self._data(number) for number in self._numbers()}
        for path in [*self._folder.glob("*.tmp"), *(set(self._folder.glob("snapshot-*.safetensors")) - whole)]:
            self._say("removed what an interrupted write left", file=path.name)
            path.unlink(missing_ok=True)

    def _load(self, number: int) -> tuple[SlicePlan, SliceState]:
        manifest = self._read(_MANIFEST.format(number), None)
        data = self._data(number)
        if data.stat().st_size != manifest["bytes"] or _digest(data) != manifest["sha256"]:
            raise DataError(f"{data.name} does not have the size and checksum of its manifest")
        arrays = load_file(data)
        gathered, lag = arrays.pop("gathered", None), arrays.pop("lag", None)
        slots: Sequence[Any] = [arrays[f"slot{index}"] for index in range(len(arrays) - 1)]
        facts = manifest["plan"]
        shapes = tuple((name, tuple(shape)) for name, shape in facts["shapes"])
        slices = tuple(tuple(Range(*part) for part in ranges) for ranges in facts["slices"])
        weights = np.ascontiguousarray(arrays["weights"])
        state = SliceState(weights, slots, manifest["table"], gathered, lag)
        return SlicePlan(shapes, slices, facts["strategy"]), state

    def _data(self, number: int) -> Path:
        return self._folder / f"snapshot-{number:012d}.safetensors"

    def _numbers(self) -> list[int]:
        found = [path.stem.removeprefix("snapshot-") for path in self._folder.glob("snapshot-*.json")]
        return [int(number) for number in found if number.isdecimal()]

    def _read(self, name: str, otherwise: Any) -> Any:
        """Reads a JSON file whose last line is its checksum; `otherwise` if there is no file. DataError if it is damaged."""
        try:
            text, _, digest = (self._folder / name).read_bytes().rstrip().rpartition(b"\n")
        except FileNotFoundError:
            return otherwise
        if hashlib.sha256(text).hexdigest().encode() != digest:
            raise DataError(f"{self._folder / name} is damaged. Restore it, or start over with another folder.")
        found = json.loads(text)
        if isinstance(found, dict):  # older files carry no number
            check_format(
                os.fspath(self._folder / name), found.pop("format", FORMAT), FORMAT, "start over with another folder"
            )
        return found

    def _write(self, name: str, value: dict[str, Any]) -> None:
        text = json.dumps({"format": FORMAT, **value})
        temporary = self._folder / f"{name}.tmp"
        try:
            temporary.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")
            _sync(temporary)
            os.replace(temporary, self._folder / name)
            _sync(self._folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DiskError(f"Can't write {self._folder / name}: {error.strerror}.") from error


def _plain(slices: Sequence[Sequence[Range]]) -> list[list[list[int]]]:
    return [[[part.start, part.stop] for part in ranges] for ranges in slices]


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""JSON files of a server's folder: each ends with its checksum and says whose it is, so that none is taken for another's."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, DataError, DiskError, PacelineError
from paceline.core.stored_format import check_format
from paceline.server.disk import Disk

FORMAT = 1
"""Format of the folder's files: each JSON file has it, since a folder may hold files of an older release and of a newer one. A
release raises it with any change that an older release would misread (docs/understand/releases.md)."""
MOST_BYTES = 64 << 20
"""Largest file that is read or written (bytes): a run's scores and its workers' clocks take a few hundred each."""
MOST_TERM = (1 << 63) - 1
_OF = "of"
"""The key under which a file says whose it is: run, server, servers and term. Files of older releases don't say it."""
_TODO = "Restore it, or start over with another folder."


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a folder is."""

    run: str
    """Empty: the run has no name."""
    server: int
    servers: int


class CheckedFiles:
    """Reads and writes the JSON files of one folder. A half-written one is never read as complete."""

    def __init__(self, folder: Path, disk: Disk, owner: Owner | None) -> None:
        """`owner`: None takes anybody's files, to look into them."""
        self.folder = folder
        self.term = 0
        """What the files that are written say."""
        self._disk = disk
        self._owner = owner

    def read(self, name: str, otherwise: Any) -> Any:
        """What a file holds; `otherwise` if there is no file. DataError if it is damaged, ConfigError if it is of another
        server or run."""
        return self.read_with_term(name, otherwise)[0]

    def read_with_term(self, name: str, otherwise: Any) -> tuple[Any, int]:
        """The same, with the term in which it was written; 0: it does not say."""
        path = self.folder / name
        try:
            if (size := path.stat().st_size) > MOST_BYTES:
                raise DataError(f"{path} has {size:,} bytes; no such file is above {MOST_BYTES:,}. {_TODO}")
            content = path.read_bytes()
        except FileNotFoundError:
            return otherwise, 0
        return self.parsed(path, content)

    def parsed(self, path: Path | str, content: bytes) -> tuple[Any, int]:
        """The same of a file's content, which may come from elsewhere. `path`: how errors name it."""
        text, _, digest = content.rstrip().rpartition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            raise DataError(f"{path} is damaged. {_TODO}")
        with understood(path):
            found = json.loads(text)
            if not isinstance(found, dict):
                return found, 0
            # older files carry no number
            check_format(os.fspath(path), found.pop("format", FORMAT), FORMAT, "start over with another folder")
            of = found.pop(_OF, {})
            self._check_owner(path, of)
            return found, checked_term(of.get("term", 0))

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replaces a file as a whole. DiskError: the older one is as it was."""
        temporary = self.prepare(name, value)
        try:
            self._disk.rename(temporary, self.folder / name)
            self._disk.sync_folder(self.folder)
        except OSError as error:
            raise self._failed(name, error) from error

    def prepare(self, name: str, value: dict[str, Any]) -> Path:
        """Writes a file under the temporary name that it returns."""
        owner = self._owner
        of: dict[str, Any] = {"term": self.term}
        if owner is not None:
            of |= {"run": owner.run, "server": owner.server, "servers": owner.servers}
        text = json.dumps({"format": FORMAT, _OF: of, **value})
        if len(text) > MOST_BYTES:
            raise DiskError(
                f"Can't write {self.folder / name}: it would have {len(text):,} bytes; no such file is above {MOST_BYTES:,}. "
                "The older one stays. Does the run have very many workers or scores?"
            )
        temporary = self.folder / f"{name}.tmp"
        try:
            self._disk.write(temporary, [f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()])
        except OSError as error:
            raise self._failed(name, error) from error
        return temporary

    def _failed(self, name: str, error: OSError) -> DiskError:
        return DiskError(f"Can't write {self.folder / name}: {error.strerror}.")

    def _check_owner(self, path: Path | str, of: dict[str, Any]) -> None:
        """The number of servers is compared by the settings, and by the plan."""
        owner = self._owner
        if owner is None or not of:
            return
        run, server = of.get("run", ""), of.get("server", owner.server)
        if server != owner.server:
            raise ConfigError(
                f"{path} is of server {server}, this is server {owner.server}. Give each server the folder that it had."
            )
        if run != owner.run and run and owner.run:
            raise ConfigError(
                f"{path} is of run {run}, this is run {owner.run}. Start run {run} again, or give this one empty folders."
            )


@contextmanager
def understood(path: Path | str) -> Iterator[None]:
    """A DataError where the block does not find in the file, whose checksum is right, what it expects there."""
    try:
        yield
    except (PacelineError, OSError, MemoryError):
        raise
    except Exception as error:  # another one for each way in which a value can be another
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{path} holds something else than this release writes ({why:.200}). {_TODO}") from error


def checked_term(found: object) -> int:
    """A term as a file says it. ValueError: it is none."""
    if type(found) is not int or not 0 <= found <= MOST_TERM:
        raise ValueError(f"its term is {found!r:.40}; expected a whole number from 0")
    return found

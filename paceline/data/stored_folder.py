"""A folder in an object store, or anywhere else that fsspec reaches."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from paceline.core.errors import DataError, DiskError, PacelineError
from paceline.data import object_stores
from paceline.data.files import reading

T = TypeVar("T")
_PART, _MOST_PARTS = 5 << 20, 9000
"""Bytes that are sent at a time: the fewest that S3 takes, since a slow line must carry them within a minute; and how many
parts a file may have there."""


_SILENCE, _SLOWEST = 60.0, 40_000
"""How long a store may say nothing (seconds), and the slowest line (bytes a second), which has more time."""


class Again(Protocol):
    """Repeats a call while it raises StoreGone, as long as that is worth it."""

    def __call__(self, attempt: Callable[[], T], /) -> T: ...


def once(attempt: Callable[[], T]) -> T:
    """An `Again` that does not repeat it."""
    return attempt()


def answered(attempt: Callable[[], T], size: int = 0) -> T:
    """What the store answers to a call that carries `size` bytes. TimeoutError if it does not: its packages may wait forever.
    The call then goes on in a thread that nobody waits for."""
    results, errors = list[T](), list[BaseException]()

    def work() -> None:
        try:
            results.append(attempt())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="object-store", daemon=True)
    thread.start()
    thread.join(most := _SILENCE + size / _SLOWEST)
    if errors:
        raise errors[0]
    if results:
        return results[0]
    raise TimeoutError(f"no answer for {most:.0f} s")


class StoredFolder:
    """The folder that a URL names. Everything may raise ConfigError where the store's package is not installed or
    credentials or rights do not suffice, DataError where there is no such bucket, and ServersGone. Not thread-safe."""

    what = "files"
    """What is in it, in a word."""

    def __init__(self, url: str, again: Again) -> None:
        self.url = url.rstrip("/")
        self._again = again
        with reading(self.url):
            from fsspec.core import url_to_fs

            self._files, self._root = url_to_fs(self.url, **object_stores.slow_line_options(self.url))

    def look(self) -> None:
        """Asks the store once: what is wrong with the URL or the credentials is raised here."""
        self._called(lambda: object_stores.look(self.url, self._files, self._root))

    def put(self, folder: Path, name: str) -> None:
        """Copies a file of a folder under its name. Raises DiskError if the store does not take it."""
        file = folder / name
        self._write(name, lambda path: self._files.put_file(str(file), path), file.stat().st_size)

    def stream(self, file: Path, name: str) -> None:
        """The same in little memory, however large the file is. Nothing of that name is seen until it is whole."""
        self._again(lambda: self._tried(lambda: self._stream(file, f"{self._root}/{name}"), "write"))

    def put_content(self, name: str, content: bytes) -> None:
        """Makes a small file of that content."""
        self._write(name, lambda path: self._files.pipe_file(path, content), len(content))

    def sizes(self) -> dict[str, int]:
        """Returns every file's bytes, by its path below the folder."""

        def file_sizes() -> dict[str, int]:
            self._files.invalidate_cache()
            try:
                listed = self._files.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
            start = len(self._root) + 1
            return {path[start:]: int(about["size"]) for path, about in listed.items() if path[start:]}

        return self._called(file_sizes)

    def content(self, name: str, most: int) -> bytes | None:
        """Returns at most this many bytes of a file; None where it does not exist. DataError where its bucket does not."""
        return self.part(name, 0, most)

    def part(self, name: str, start: int, stop: int) -> bytes | None:
        """Returns these bytes of a file, fewer where it ends before; None where it does not exist."""

        def read() -> bytes | None:
            try:
                content: bytes = self._files.cat_file(f"{self._root}/{name}", start=start, end=stop)
            except FileNotFoundError:
                object_stores.look(self.url, self._files, self._root)
                return None
            return content

        return self._called(read, size=min(stop - start, _PART))

    def remove(self, names: Iterable[str]) -> None:
        """Removes these files, as far as they exist."""

        def remove_file(path: str) -> None:
            with suppress(FileNotFoundError):
                self._files.rm_file(path)

        for name in names:
            self._write(name, remove_file)

    def _stream(self, file: Path, path: str) -> None:
        size = file.stat().st_size
        block = max(_PART, -(-size // _MOST_PARTS // _PART) * _PART)
        with file.open("rb") as source:
            target: Any = answered(lambda: self._files.open(path, "wb", block_size=block))
            try:
                while part := source.read(block):
                    answered(partial(target.write, part), len(part))
                answered(target.close, min(block, size))  # sends the last part
            except BaseException as error:
                target.closed = True  # or it would be closed, and seen, when it is collected
                if not isinstance(error, TimeoutError):
                    with suppress(Exception):
                        answered(target.discard)
                raise

    def _write(self, name: str, write: Callable[[str], None], size: int = 0) -> None:
        self._called(lambda: write(f"{self._root}/{name}"), "write", size)

    def _called(self, attempt: Callable[[], T], right: str = "read", size: int = 0) -> T:
        """What the store answers, in the end. `right`: what is done with its objects; `size`: the bytes that it carries."""
        return self._again(lambda: self._tried(lambda: answered(attempt, size), right))

    def _tried(self, attempt: Callable[[], T], right: str) -> T:
        try:
            return attempt()
        except PacelineError:
            raise
        except Exception as error:  # each store has its own kinds
            raise self._refusal(error, right) from error

    def _refusal(self, error: Exception, right: str) -> PacelineError:
        """The error to raise for one of the store's."""
        if told := object_stores.store_error(self.url, error, right):
            return told
        if right == "write":
            return DiskError(
                f"Can't write {self.what} to {self.url}: {error}. May this user write there, and has it room?"
            )
        return DataError(f"Can't read {self.url}: {error}. Correct the URL, or the variables ({object_stores.PAGE}).")

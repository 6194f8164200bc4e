"""A folder in an object store, or anywhere else that fsspec reaches."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from paceline.core.errors import DataError, DiskError, PacelineError
from paceline.data import object_stores
from paceline.data.files import reading

T = TypeVar("T")


class Again(Protocol):
    """Repeats a call while it raises StoreGone, as long as that is worth it."""

    def __call__(self, attempt: Callable[[], T], /) -> T: ...


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

            self._files, self._root = url_to_fs(self.url)

    def look(self) -> None:
        """Asks the store once: what is wrong with the URL or the credentials is raised here."""
        self._called(lambda: object_stores.look(self.url, self._files, self._root))

    def put(self, folder: Path, name: str) -> None:
        """Copies a file of a folder under its name. Raises DiskError if the store does not take it."""
        self._write(name, lambda path: self._files.put_file(str(folder / name), path))

    def _write(self, name: str, write: Callable[[str], None]) -> None:
        self._called(lambda: write(f"{self._root}/{name}"), "write")

    def _called(self, attempt: Callable[[], T], right: str = "read") -> T:
        """What the store answers, in the end. `right`: what is done with its objects."""

        def tried() -> T:
            try:
                return attempt()
            except PacelineError:
                raise
            except Exception as error:  # each store has its own kinds
                raise self._refusal(error, right) from error

        return self._again(tried)

    def _refusal(self, error: Exception, right: str) -> PacelineError:
        """The error to raise for one of the store's."""
        if told := object_stores.store_error(self.url, error, right):
            return told
        if right == "write":
            return DiskError(
                f"Can't write {self.what} to {self.url}: {error}. May this user write there, and has it room?"
            )
        return DataError(f"Can't read {self.url}: {error}. Correct the URL, or the variables ({object_stores.PAGE}).")

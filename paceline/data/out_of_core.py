"""Arrays that are larger than memory: made piece by piece, read piece by piece, and never resident as a whole."""

import math
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DiskError

PIECE_BYTES = 16 << 20
"""About as much is read or written at a time (bytes)."""
IN_MEMORY = 256 << 20
"""A growing array above this goes on in a temporary file (bytes)."""


def ranges(count: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of one piece of `count` rows after the other. `row_bytes`: the size of a row."""
    rows = max(1, PIECE_BYTES // max(1, row_bytes))
    for start in range(0, count, rows):
        yield start, min(start + rows, count)


def row_bytes(array: npt.NDArray[Any]) -> int:
    """Bytes of one row of the array (N, ...)."""
    return array.dtype.itemsize * math.prod(array.shape[1:])


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether the array's values are read from a file only when they are needed."""
    return isinstance(_owners(array)[-1], mmap.mmap)


def release(array: npt.NDArray[Any]) -> None:
    """Gives back the memory of the pages that were read so far, if the array is mapped from a file; they are read again
    when they are needed. Pages that may have changes which the file lacks (mode "c") stay."""
    *views, owner = _owners(array)
    changes = any(isinstance(view, np.memmap) and view.mode == "c" for view in views)
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and not changes:
        owner.madvise(mmap.MADV_DONTNEED)


def _owners(array: npt.NDArray[Any]) -> list[object]:
    """The array, what it is a view of, and so on to what its memory belongs to; None: to the last array itself."""
    found: list[object] = [array]
    while isinstance(found[-1], np.ndarray):
        found.append(found[-1].base)
    return found


class Growing:
    """An array that rows are appended to: in memory while it is small, then in a file without a name in the folder for
    temporary files (TMPDIR), which the system frees when the array is no longer used. Not thread-safe."""

    def __init__(self, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = (), in_memory: int | None = None) -> None:
        """`in_memory`: the most that stays in memory (bytes), by default IN_MEMORY."""
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self._in_memory = IN_MEMORY if in_memory is None else in_memory
        self._blocks: list[npt.NDArray[Any]] = []
        self._bytes = 0
        self._file: Any = None

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Copies these rows to the end. DiskError where the temporary folder is full."""
        assert rows.shape[1:] == self._row_shape
        self._bytes += rows.size * self._dtype.itemsize
        if self._bytes <= self._in_memory:
            self._blocks.append(np.array(rows, self._dtype, order="C"))
        else:
            self._spill(np.ascontiguousarray(rows, self._dtype))

    def array(self) -> npt.NDArray[Any]:
        """Everything appended so far (N, ...); a mapped array where it went to a file. Call it once, at the end."""
        if self._file is None:
            blocks = self._blocks
            self._blocks = []
            return np.concatenate(blocks) if blocks else np.empty((0, *self._row_shape), self._dtype)
        with disk_errors():
            self._file.flush()
        row = self._dtype.itemsize * math.prod(self._row_shape)
        return np.memmap(self._file, self._dtype, "r", shape=(self._bytes // row, *self._row_shape))

    def _spill(self, rows: npt.NDArray[Any]) -> None:
        with disk_errors():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the array
            for block in (*self._blocks, rows):
                self._file.write(block.data)
        self._blocks.clear()


@contextmanager
def disk_errors() -> Iterator[None]:
    """DiskError where the temporary folder is full."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"Can't keep a large data set in {tempfile.gettempdir()}: {error.strerror}. Free some space, or set TMPDIR to "
            "a folder with more."
        ) from error


class GrowingRows:
    """Features that rows are appended to, dense or sparse like the first ones. Not thread-safe."""

    def __init__(self, like: Any) -> None:
        """`like`: rows of the same form, of which only type and width are looked at; at most 2^31 columns if sparse."""
        self._sparse = hasattr(like, "indptr")
        self._columns = like.shape[1] if len(like.shape) > 1 else 1
        self._values = Growing(like.dtype, () if self._sparse else like.shape[1:])
        self._indices = Growing(np.int32)
        self._lengths = Growing(np.int64)

    def append(self, rows: Any) -> None:
        """Copies these rows to the end. DiskError where the temporary folder is full."""
        if not self._sparse:
            self._values.append(rows)
            return
        self._values.append(rows.data)
        self._indices.append(rows.indices)
        self._lengths.append(np.diff(rows.indptr))

    def array(self) -> Any:
        """Everything appended so far, a numpy array or a scipy.sparse.csr_array. Call it once, at the end."""
        if not self._sparse:
            return self._values.array()
        return csr_rows(self._values.array(), self._indices.array(), self._lengths.array(), self._columns)


def csr_rows(
    values: npt.NDArray[Any], indices: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64], columns: int
) -> Any:
    """A scipy.sparse.csr_array (N, columns) of these arrays; `lengths` (N,) are the rows' counts of values. Indices that need
    int64 are converted piece by piece: scipy copies arrays to memory whose type is not the one that it wants for both."""
    from scipy.sparse import csr_array

    shape = (len(lengths), columns)
    index = np.dtype(np.int32 if max(len(values), *shape) < 1 << 31 else np.int64)
    if index != indices.dtype:
        wide = Growing(index)
        for start, stop in ranges(len(indices), index.itemsize):
            wide.append(indices[start:stop])
        indices = wide.array()
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return csr_array((values, indices, ends.astype(index)), shape)

"""An array that outgrows memory goes on in a file and holds the same values."""

import errno
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DiskError
from paceline.data import out_of_core
from paceline.data.out_of_core import Growing, is_mapped, ranges, release, row_bytes


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 100)


def grown(blocks: list[np.ndarray], dtype: str = "f4", row_shape: tuple[int, ...] = ()) -> np.ndarray:
    growing = Growing(dtype, row_shape)
    for block in blocks:
        growing.append(block)
    return growing.array()


@pytest.mark.parametrize("row_shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("rows", [1, 8, 50])
def test_what_was_appended_is_there_in_memory_and_in_a_file(small_memory: None, rows: int, row_shape: tuple[int, ...]):
    every = np.random.default_rng(0).random((rows, *row_shape)).astype(np.float32)

    found = grown(np.array_split(every, 4), "f4", row_shape)

    assert np.array_equal(found, every)
    assert found.dtype == np.float32
    assert is_mapped(found) == (every.nbytes > 100)


def test_blocks_become_the_type_of_the_array_and_are_copied(small_memory: None):
    block = np.arange(5)
    growing = Growing(np.int32)

    growing.append(block)
    block[:] = 9

    assert growing.array().tolist() == [0, 1, 2, 3, 4]
    assert growing.array().dtype == np.int32


def test_turned_rows_are_written_in_their_own_order(small_memory: None):
    turned = np.asfortranarray(np.arange(60.0).reshape(20, 3))

    assert np.array_equal(grown([turned, turned], "f8", (3,)), np.concatenate([turned, turned]))


def test_nothing_appended_is_an_array_without_rows():
    assert grown([], "u1", (2, 2)).shape == (0, 2, 2)
    assert grown([np.empty((0, 2))], "u1", (2,)).shape == (0, 2)


def test_empty_blocks_between_others_change_nothing(small_memory: None):
    assert grown([np.ones(40), np.ones(0), np.zeros(1)]).tolist() == [1.0] * 40 + [0.0]


def test_a_full_disk_is_told(small_memory: None, monkeypatch: pytest.MonkeyPatch):
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)

    with pytest.raises(DiskError, match=r"No space left on device. Free some space, or set TMPDIR"):
        grown([np.ones(10), np.ones(100)])


def test_a_temporary_folder_that_is_gone_is_told(small_memory: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with pytest.raises(DiskError, match=r"gone: No such file or directory"):
        grown([np.ones(100)])


def test_the_file_leaves_no_name_behind(small_memory: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert len(grown([np.ones(100)])) == 100
    assert list(tmp_path.iterdir()) == []


def test_releasing_keeps_the_values_of_the_array_and_its_views(small_memory: None):
    found = grown([np.arange(2000)], "i8")
    view = found[10:20].reshape(2, 5)

    release(view)

    assert is_mapped(view)
    assert found.sum() == 1999 * 1000
    assert view.ravel().tolist() == list(range(10, 20))


def test_releasing_an_array_keeps_changes_that_its_file_lacks(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(10.0))
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed -= 5

    release(np.asarray(changed[2:]))

    assert is_mapped(changed)
    assert changed.tolist() == [number - 5.0 for number in range(10)]


def test_releasing_an_array_in_memory_does_nothing():
    array = np.arange(5)

    release(array)

    assert not is_mapped(array)
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_ranges_cover_all_rows_in_pieces_of_limited_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(out_of_core, "PIECE_BYTES", 100)

    assert list(ranges(7, 30)) == [(0, 3), (3, 6), (6, 7)]
    assert list(ranges(2, 1000)) == [(0, 1), (1, 2)]
    assert list(ranges(3, 0)) == [(0, 3)]
    assert list(ranges(0, 8)) == []


def test_the_size_of_a_row_counts_all_its_values():
    assert row_bytes(np.empty((5, 2, 3), np.float32)) == 24
    assert row_bytes(np.empty(5, np.uint8)) == 1

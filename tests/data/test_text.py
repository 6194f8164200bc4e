"""A text becomes windows of bytes that are labelled with what follows, or is refused with a reason."""

from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data import text
from paceline.data.text import read_text


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """20,000 bytes that count from 0 to 99 again and again."""
    path = tmp_path / "notes.txt"
    path.write_bytes(bytes(range(100)) * 200)
    return path


def test_windows_follow_each_other_and_are_labelled_with_the_next_byte(notes: Path):
    train = read_text(notes, window=30).train

    assert (train.features.dtype, train.labels.dtype) == (np.uint8, np.int64)
    assert train.features[0].tolist() == list(range(30))
    assert train.features[1].tolist() == list(range(30, 60))
    assert train.labels[:4].tolist() == [30, 60, 90, 20]
    assert len(train.features) == len(train.labels) == 533  # (16,000 - 1) // 30


def test_the_last_tenths_are_for_validation_and_test(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"a" * 16_000 + b"v" * 2_000 + b"t" * 2_000)

    dataset = read_text(path, window=64)

    assert [bytes(np.unique(part.features)) for part in (dataset.train, dataset.validation, dataset.test)] == [
        b"a",
        b"v",
        b"t",
    ]
    assert len(dataset.test) == 31  # (2,000 - 1) // 64


def test_letters_of_several_bytes_are_read(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("Grüße, Ωμέγα! " * 1200, encoding="utf-8")

    assert read_text(path, window=64).train.features.max() > 127


def test_a_file_that_is_not_there_says_what_would_do(tmp_path: Path):
    with pytest.raises(DataError, match=r"Can't read the text .*nowhere: No such file.*UTF-8\) of 20 kB or more"):
        read_text(tmp_path / "nowhere", window=64)


def test_a_folder_is_no_text(tmp_path: Path):
    with pytest.raises(DataError, match="Is a directory"):
        read_text(tmp_path, window=64)


def test_a_short_text_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_bytes(b"a" * 19_999)

    with pytest.raises(DataError, match="has 19,999 bytes; expected 20,000 to 1,073,741,824"):
        read_text(tmp_path / "notes.txt", window=64)


def test_a_huge_text_is_refused_before_it_is_read(notes: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text, "MAX_BYTES", 19_000)

    with pytest.raises(DataError, match="has 20,000 bytes; expected"):
        read_text(notes, window=64)


def test_a_file_that_is_no_text_is_refused_with_the_place(notes: Path):
    content = bytearray(notes.read_bytes())
    content[777] = 0xFF
    notes.write_bytes(content)

    with pytest.raises(DataError, match="is not UTF-8 text: invalid start byte at byte 777"):
        read_text(notes, window=64)

"""Paths open wherever the data lies, and what can't be read says why."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import uuid
from pathlib import Path

import numpy as np
import pytest
from test_data_idx import small_files

from paceline.core.errors import ConfigError, DataError
from paceline.data.cifar import TEST, TRAIN, read_cifar10
from paceline.data.files import at, ending, opened, reading
from paceline.data.idx import read_mnist
from paceline.data.text import read_text


@pytest.fixture
def memory() -> Path:
    """An empty folder in fsspec's file system in memory."""
    folder = at(f"memory://{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    return folder


def test_a_local_path_stays_what_it_is(tmp_path: Path):
    assert at(str(tmp_path)) == tmp_path
    assert at("a/b.csv") == Path("a/b.csv")
    assert at(tmp_path) == tmp_path


def test_a_path_that_was_not_given_is_asked_for():
    with pytest.raises(ConfigError, match=r"needs data of yours: set data\.path \(--data\)"):
        at("bundled")


def test_a_url_of_a_local_file_is_that_file(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"here")

    assert at(f"file://{tmp_path}/a.txt").read_bytes() == b"here"


def test_a_file_in_memory_is_found_again_by_its_url(memory: Path):
    (memory / "a.txt").write_bytes(b"there")

    assert at(f"{memory}/a.txt").read_bytes() == b"there"
    assert [file.name for file in memory.iterdir()] == ["a.txt"]


def test_an_unknown_kind_of_url_is_refused():
    with pytest.raises(DataError, match=r"Can't read nowhere://a/b: .*nowhere"):
        at("nowhere://a/b")


def test_a_store_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)

    with pytest.raises(ConfigError, match=r"Reading s3://bucket/a.csv needs .*s3fs.*pip install 'paceline\[sharder\]'"):
        at("s3://bucket/a.csv")


def test_no_package_for_urls_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "upath", None)

    with pytest.raises(ConfigError, match=r"pip install 'paceline\[sharder\]'"):
        at("memory://a")


@pytest.mark.parametrize(("name", "pack"), [("a.gz", gzip), ("a.bz2", bz2), ("a.xz", lzma), ("a", None)])
def test_a_packed_file_is_opened_unpacked(memory: Path, name: str, pack):
    (memory / name).write_bytes(pack.compress(b"content") if pack else b"content")

    with opened(memory / name) as stream:
        assert stream.read() == b"content"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.csv", ".csv"), ("a.b.CSV.gz", ".csv"), ("a.gz", ""), ("a", ""), ("a.parquet", ".parquet")],
)
def test_the_ending_is_that_of_what_is_packed(name: str, expected: str):
    assert ending(Path(name)) == expected


def test_a_failure_of_a_library_becomes_one_sentence_of_bad_data():
    with (
        pytest.raises(DataError, match=r"^Can't read a\.csv: first line\. Expected a table\.$"),
        reading("a.csv", "Expected a table."),
    ):
        raise ValueError("first line.\nsecond line")


def test_a_missing_file_is_bad_data(tmp_path: Path, memory: Path):
    for folder in (tmp_path, memory):
        file = folder / "nowhere"
        with pytest.raises(DataError, match=r"Can't read .*nowhere"), reading(file), opened(file):
            pass


def test_cifar_is_read_from_an_archive_and_a_folder_in_memory(tmp_path: Path, memory: Path):
    rng = np.random.default_rng(0)
    files = {name: bytes([3]) + rng.bytes(3072) for name in (*TRAIN, TEST)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        (memory / name).write_bytes(content)
    (memory / "c.tar.gz").write_bytes(packed.getvalue())

    expected = read_cifar10(tmp_path).digest()

    assert read_cifar10(f"{memory}/c.tar.gz").digest() == expected
    assert read_cifar10(str(memory)).digest() == expected


def test_mnist_is_read_from_memory(tmp_path: Path, memory: Path):
    for name, content in small_files().items():
        (tmp_path / name).write_bytes(content)
        (memory / f"{name}.gz").write_bytes(gzip.compress(content))

    assert read_mnist(str(memory)).digest() == read_mnist(tmp_path).digest()


def test_a_text_is_read_from_memory(memory: Path):
    (memory / "a.txt").write_bytes(b"0123456789" * 3000)

    assert read_text(f"{memory}/a.txt", 64).train.features.shape == (374, 64)

"""Paths open wherever the data lies, and what can't be read says why."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from paceline.core.errors import ConfigError, DataError
from paceline.data import files
from paceline.data.cifar import TEST, TRAIN, read_cifar10, read_cifar100
from paceline.data.files import at, ending, folder_at, opened, parsed, plain_or_packed, reading
from paceline.data.idx import read_mnist
from paceline.data.images import read_images
from paceline.data.npz import read_npy, read_npz
from paceline.data.rcv1 import read_rcv1
from paceline.data.svmlight import read_svmlight
from paceline.data.table import read_table
from paceline.data.text import read_text
from tests.data.test_idx import small_files


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
    with pytest.raises(ConfigError, match=r"needs your own data: set data\.path \(--data\)"):
        at("bundled")


def test_a_file_is_found_by_its_url(tmp_path: Path, memory: Path):
    (tmp_path / "a.txt").write_bytes(b"here")
    (memory / "a.txt").write_bytes(b"there")

    assert at(f"file://{tmp_path}/a.txt").read_bytes() == b"here"
    assert at(f"{memory}/a.txt").read_bytes() == b"there"
    assert [file.name for file in memory.iterdir()] == ["a.txt"]


def test_an_unknown_kind_of_url_is_refused():
    with pytest.raises(DataError, match=r"Can't read nowhere://a/b: .*nowhere"):
        at("nowhere://a/b")


@pytest.mark.parametrize(
    ("url", "package", "told"),
    [
        ("s3://b/a.csv", "s3fs", r"Reading s3://b/a.csv needs s3fs, .*: pip install 'paceline\[object-store\]'"),
        ("gs://b/a.csv", "gcsfs", r"Reading gs://b/a.csv needs gcsfs, .*: pip install 'paceline\[object-store\]'"),
        ("abfs://b/a.csv", "adlfs", r"Reading abfs://b/a.csv needs adlfs, .*: pip install 'paceline\[object-store\]'"),
        ("sftp://host/a", "paramiko", r"Reading sftp://host/a needs a package .*: .*aramiko"),
        ("memory://a", "upath", r"pip install 'paceline\[sharder\]'"),
    ],
)
def test_a_url_without_its_package_says_what_to_install(monkeypatch, url: str, package: str, told: str):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(_registry, url.partition(":")[0], raising=False)  # where another test has used it

    with pytest.raises(ConfigError, match=told):
        at(url)


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


class Refused(Exception):
    """What a store's library raises: no OSError."""


class RefusingStore(AbstractFileSystem):
    protocol = "refusing"

    def info(self, path: str, **options: object) -> dict[str, object]:
        raise Refused("403 Forbidden")

    ls = _open = info


READERS = {
    "cifar10": read_cifar10,
    "cifar100": lambda path: read_cifar100(path, "fine"),
    "images": read_images,
    "mnist": read_mnist,
    "npy": lambda path: read_npy(path, path),
    "npz": read_npz,
    "rcv1": read_rcv1,
    "svmlight": read_svmlight,
    "table": lambda path: read_table(f"{path}.csv", "y"),
    "text": lambda path: read_text(path, 64),
}


@pytest.mark.filterwarnings("ignore:UPath 'refusing'")
@pytest.mark.parametrize("reader", READERS)
def test_a_store_that_fails_in_its_own_way_is_bad_data_with_its_words(reader: str):
    fsspec.register_implementation("refusing", RefusingStore, clobber=True)

    with pytest.raises(DataError, match=r"Can't read .*refusing://bucket/mine.*: 403 Forbidden"):
        READERS[reader]("refusing://bucket/mine")


@pytest.mark.parametrize("reader", READERS)
def test_nothing_in_a_store_is_bad_data(memory: Path, reader: str):
    with pytest.raises(DataError, match=str(memory / "nowhere")):
        READERS[reader](f"{memory}/nowhere")


def test_a_folder_is_told_from_a_file_and_from_nothing(tmp_path: Path, memory: Path):
    for folder in (tmp_path, memory):
        (folder / "file").write_bytes(b"x")

        assert folder_at(str(folder), "Put it there.") == folder
        with pytest.raises(DataError, match=r"file is a file, not a folder\. Put it there\.$"):
            folder_at(str(folder / "file"), "Put it there.")
        with pytest.raises(DataError, match=r"nowhere does not exist\. Put it there\.$"):
            folder_at(str(folder / "nowhere"), "Put it there.")


def test_a_file_is_found_as_it_is_or_gzipped(tmp_path: Path):
    (tmp_path / "a.gz").touch()
    (tmp_path / "b.gz").touch()
    (tmp_path / "b").touch()

    assert [plain_or_packed(tmp_path, name) for name in "abc"] == [tmp_path / "a.gz", tmp_path / "b", None]


@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_blocks_are_whole_lines_and_lose_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str):
    monkeypatch.setattr(files, "PIECE_BYTES", 20)
    content = ("\n".join("x" * length for length in (3, 50, 0, 7, 19, 20, 21, 1)) + last).encode()
    (tmp_path / "a").write_bytes(content)

    blocks = list(parsed(tmp_path / "a", bytes, ""))

    assert b"".join(blocks) == content
    assert len(blocks) > 4
    assert all(block.endswith(b"\n") for block in blocks[:-1])


@pytest.mark.parametrize("bad", [1, 2, 7, 40])
def test_the_first_bad_line_is_found_whatever_comes_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int):
    monkeypatch.setattr(files, "PIECE_BYTES", 60)
    lines = [b"12"] * 40
    for number in range(bad, 41, 3):
        lines[number - 1] = b"x%d" % number
    (tmp_path / "a").write_bytes(b"\n".join(lines))

    with pytest.raises(DataError, match=rf"a: line {bad} \('x{bad}'\): invalid literal .*\. Expected numbers\.$"):
        for _ in parsed(
            tmp_path / "a", lambda block: [int(line.decode()) for line in block.split()], "Expected numbers."
        ):
            pass


def test_a_parser_that_lacks_is_no_bad_line(tmp_path: Path):
    def parse(block: bytes) -> None:
        raise ModuleNotFoundError("No module named 'sklearn'")

    (tmp_path / "a").write_bytes(b"1\n")

    with pytest.raises(ConfigError, match=r"No module named 'sklearn'. Get it by pip install"):
        list(parsed(tmp_path / "a", parse, ""))

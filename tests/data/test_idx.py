"""MNIST's idx files are read whole or refused with a reason."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data import idx
from paceline.data.idx import read_mnist
from tests.support.damage import never_other


def idx_bytes(array: np.ndarray) -> bytes:
    """The array in idx form."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.astype(np.uint8).tobytes()


def small_files(train: int = 5, test: int = 3) -> dict[str, bytes]:
    """The four files: image i has the grey value i, label i % 10."""
    files = {}
    for name, count in (("train", train), ("t10k", test)):
        images = np.zeros((count, 28, 28)) + np.arange(count)[:, None, None]
        files[f"{name}-images-idx3-ubyte"] = idx_bytes(images)
        files[f"{name}-labels-idx1-ubyte"] = idx_bytes(np.arange(count) % 10)
    return files


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_the_four_files_are_read(tmp_path: Path):
    dataset = read_mnist(write(tmp_path / "mnist", small_files()))

    assert dataset.classes == tuple("0123456789")
    assert dataset.train.features.shape == (5, 28, 28)
    assert dataset.train.features.dtype == np.uint8
    assert dataset.train.features[:, 27, 27].tolist() == [0, 1, 2, 3, 4]
    assert dataset.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert dataset.train.labels.dtype == np.int64
    assert len(dataset.test) == 3


@pytest.mark.parametrize("ending", [".gz", ""])
def test_gzipped_files_are_the_same_also_when_their_name_does_not_say_so(tmp_path: Path, ending: str):
    files = small_files()

    plain = read_mnist(write(tmp_path / "plain", files))
    packed = {f"{name}{ending}": gzip.compress(content) for name, content in files.items()}

    assert read_mnist(write(tmp_path / "packed", packed)).digest() == plain.digest()


def test_what_is_no_folder_says_where_to_get_the_files(tmp_path: Path):
    folder = write(tmp_path / "mnist", small_files())

    with pytest.raises(DataError, match=r"nowhere does not exist\. Get train-images.*yann\.lecun\.com"):
        read_mnist(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte is a file, not a folder\. Get train-images"):
        read_mnist(folder / "train-images-idx3-ubyte")


def test_a_missing_file_is_named(tmp_path: Path):
    files = small_files()
    del files["t10k-labels-idx1-ubyte"]

    with pytest.raises(DataError, match=r"lacks t10k-labels-idx1-ubyte \(or t10k-labels-idx1-ubyte\.gz\)"):
        read_mnist(write(tmp_path / "mnist", files))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "starts with nothing; an idx file of bytes with 3 dim.* with 00000803"),
        ("train-images-idx3-ubyte", b"<html>404 not found</html>", "starts with 3c68746d"),
        ("train-images-idx3-ubyte", idx_bytes(np.zeros(5)), "starts with 00000801; .* 00000803"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(5)).replace(b"\x08", b"\x0d", 1), "starts with 00000d01"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(5))[:6], "starts with 00000801"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(5))[:-1], "claims 5 bytes after its header but has only 4"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(5)) + b"x", "claims 5 bytes after its header but has more"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(4)), "has 4 labels for 5 images"),
        ("train-labels-idx1-ubyte", idx_bytes(np.array([0, 1, 10, 2, 3])), "Label 2 of .* is 10; expected 0 to 9"),
        ("train-images-idx3-ubyte", idx_bytes(np.zeros((5, 8, 8))), "are 8x8; expected 28x28"),
        ("train-images-idx3-ubyte", bytes((0, 0, 8, 3)) + b"\xff" * 12, "claims 79,.*,375 bytes; the limit"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes, message: str):
    folder = write(tmp_path / "mnist", {**small_files(), name: content})

    with pytest.raises(DataError, match=message):
        read_mnist(folder)


def test_files_without_examples_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no examples"):
        read_mnist(write(tmp_path / "mnist", small_files(train=0)))


def test_a_gzipped_file_that_is_cut_or_changed_never_gives_other_images(tmp_path: Path):
    name, folder = "train-images-idx3-ubyte", write(tmp_path / "mnist", small_files())
    packed = gzip.compress(small_files()[name])

    # bytes 3 to 9 are gzip's time stamp and the like
    assert never_other(folder / name, lambda: read_mnist(folder).digest(), packed, first=10, tries=30) > 20


def test_a_file_that_unpacks_to_more_than_it_claims_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reads: list[int] = []
    real = gzip.GzipFile.read

    def noted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        reads.append(-1 if size is None else size)
        return real(self, size)

    monkeypatch.setattr(idx.gzip.GzipFile, "read", noted)
    bomb = gzip.compress(idx_bytes(np.zeros(5)) + bytes(10_000_000))
    folder = write(tmp_path / "mnist", {**small_files(), "train-labels-idx1-ubyte": bomb})

    with pytest.raises(DataError, match="has more"):
        read_mnist(folder)
    assert reads == [8, 6]

"""Numpy's files are read by the names of their arrays, and never run code."""

import io
import pickle
import uuid
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data.files import at
from paceline.data.npz import read_npy, read_npz
from tests.support.damage import never_other

FEATURES = np.arange(12, dtype=np.uint8).reshape(6, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "local":
        return tmp_path
    found = at(f"memory://{uuid.uuid4().hex}")
    found.mkdir(parents=True)
    return found


def npz_bytes(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_features_and_labels_are_read_as_they_are(folder: Path):
    (folder / "a.npz").write_bytes(npz_bytes(features=FEATURES, labels=LABELS, other=np.ones(3)))

    dataset = read_npz(str(folder / "a.npz"))

    assert dataset.train.features.tolist() == FEATURES.tolist()
    assert dataset.train.features.dtype == np.uint8
    assert dataset.train.labels.tolist() == LABELS.tolist()
    assert dataset.test is None
    assert dataset.validation is None


def test_names_choose_the_sets(tmp_path: Path):
    arrays = {"x_train": FEATURES, "y_train": LABELS, "x_test": FEATURES[:2], "y_test": LABELS[:2]}
    (tmp_path / "a.npz").write_bytes(npz_bytes(**arrays))
    held_out = ("x_test", "y_test")

    dataset = read_npz(tmp_path / "a.npz", ("x_train", "y_train"), test=held_out, validation=held_out)

    assert [len(dataset.train), len(dataset.test), len(dataset.validation)] == [6, 2, 2]


def test_a_compressed_file_is_the_same(tmp_path: Path):
    np.savez_compressed(tmp_path / "packed.npz", features=FEATURES, labels=LABELS)
    np.savez(tmp_path / "plain.npz", features=FEATURES, labels=LABELS)

    assert read_npz(tmp_path / "packed.npz").digest() == read_npz(tmp_path / "plain.npz").digest()


def test_a_name_that_is_not_there_lists_those_that_are(tmp_path: Path):
    (tmp_path / "a.npz").write_bytes(npz_bytes(x=FEATURES, y=LABELS))

    with pytest.raises(DataError, match=r"a\.npz has no array 'features'; it holds x, y\."):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("features", "labels", "told"),
    [
        (FEATURES, LABELS[:5], "6 rows of features but 5 labels"),
        (FEATURES, np.array([0, 1, np.nan, 0, 1, 0]), "labels of example 2 hold NaN"),
        (np.array([[1.0], [np.nan]]), np.array([0, 1]), "features of example 1 hold NaN"),
    ],
)
def test_missing_labels_and_features_are_told(tmp_path: Path, features: np.ndarray, labels: np.ndarray, told: str):
    (tmp_path / "a.npz").write_bytes(npz_bytes(features=features, labels=labels))

    with pytest.raises(DataError, match=told):
        read_npz(tmp_path / "a.npz")


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickled_objects_are_refused_and_not_run(tmp_path: Path):
    trap = tmp_path / "sprung"
    objects = np.array([Bomb(str(trap))], dtype=object)
    np.savez(tmp_path / "a.npz", features=objects, labels=LABELS)
    np.save(tmp_path / "a.npy", objects)
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Bomb(str(trap))))

    for name in ("a.npz", "bare.npz"):
        with pytest.raises(DataError, match="or holds Python objects, which are refused"):
            read_npz(tmp_path / name)
    with pytest.raises(DataError, match="or holds Python objects, which are refused"):
        read_npy(tmp_path / "a.npy", tmp_path / "a.npy")
    assert not trap.exists()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 and then nothing", b"<html>404</html>", b"\x93NUMPY\x01\x00\xff\xff"]
)
def test_what_is_no_numpy_file_is_refused(folder: Path, content: bytes):
    (folder / "a.npz").write_bytes(content)

    with pytest.raises(DataError, match=r"Can't read .*a\.npz: .*damaged, no npz file"):
        read_npz(folder / "a.npz")
    with pytest.raises(DataError, match=r"Can't read .*a\.npz: .*damaged, no npy file"):
        read_npy(folder / "a.npz", folder / "a.npz")


def test_a_cut_or_changed_file_never_gives_other_examples(tmp_path: Path):
    content = npz_bytes(features=np.zeros((200, 4)), labels=np.zeros(200, np.int64))
    file = tmp_path / "a.npz"

    assert never_other(file, lambda: read_npz(file).digest(), content) > 40


def test_two_npy_files_are_features_and_labels(folder: Path):
    for name, array in {"x": FEATURES, "y": LABELS, "tx": FEATURES[:3], "ty": LABELS[:3]}.items():
        (folder / f"{name}.npy").write_bytes(npy_bytes(array))

    features, labels, *test = (str(folder / f"{name}.npy") for name in ("x", "y", "tx", "ty"))
    dataset = read_npy(features, labels, test=tuple(test))

    assert dataset.train.features.tolist() == FEATURES.tolist()
    assert dataset.train.labels.tolist() == LABELS.tolist()
    assert dataset.test.labels.tolist() == [0, 1, 2]


def test_local_npy_files_are_mapped_not_copied(tmp_path: Path):
    np.save(tmp_path / "x.npy", FEATURES)
    np.save(tmp_path / "y.npy", LABELS)

    assert isinstance(read_npy(tmp_path / "x.npy", tmp_path / "y.npy").train.features, np.memmap)


def test_a_truncated_npy_file_is_refused(folder: Path):
    (folder / "x.npy").write_bytes(npy_bytes(FEATURES)[:-1])
    (folder / "y.npy").write_bytes(npy_bytes(LABELS))

    with pytest.raises(DataError, match=r"Can't read .*x\.npy"):
        read_npy(folder / "x.npy", folder / "y.npy")


def test_the_other_kind_of_file_names_its_function(tmp_path: Path):
    (tmp_path / "a.npz").write_bytes(npz_bytes(features=FEATURES, labels=LABELS))
    np.save(tmp_path / "a.npy", FEATURES)

    with pytest.raises(DataError, match=r"is a single array; .* with read_npy\(\)"):
        read_npz(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"is not a single array; .* with read_npz\(\)"):
        read_npy(tmp_path / "a.npz", tmp_path / "a.npz")


def test_no_file_is_told(folder: Path):
    with pytest.raises(DataError, match=r"Can't read .*nowhere\.npz: (No such file|.*nowhere)"):
        read_npz(folder / "nowhere.npz")

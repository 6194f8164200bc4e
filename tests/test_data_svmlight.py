"""LIBSVM text becomes dense rows with class numbers, or is refused with a reason."""

import bz2
import uuid
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data.files import at
from paceline.data.svmlight import read_svmlight

TEXT = "+1 1:0.5 3:2\n-1 2:1 # a comment\n+1 4:-3e2\n"


def written(folder: Path, text: str, name: str = "a.libsvm") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_lines_become_dense_rows_and_labels_class_numbers(tmp_path: Path):
    dataset = read_svmlight(written(tmp_path, TEXT))

    assert dataset.train.features.tolist() == [[0.5, 0, 2, 0], [0, 1, 0, 0], [0, 0, 0, -300]]
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert dataset.train.labels.dtype == np.int64
    assert dataset.test is None


def test_indices_count_from_zero_where_one_is_zero(tmp_path: Path):
    assert read_svmlight(written(tmp_path, "0 0:7 2:1\n")).train.features.tolist() == [[7, 0, 1]]


def test_both_files_get_the_same_features_and_classes(tmp_path: Path):
    test = written(tmp_path, "3 1:1\n5 6:1\n", "test")

    dataset = read_svmlight(written(tmp_path, "5 1:1\n9 2:1\n"), test)

    assert dataset.test is not None
    assert dataset.train.features.shape == (2, 6)
    assert dataset.test.features.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
    assert dataset.train.labels.tolist() == [1, 2]
    assert dataset.test.labels.tolist() == [0, 1]


def test_the_number_of_features_can_be_given(tmp_path: Path):
    file = written(tmp_path, TEXT)

    assert read_svmlight(file, features=9).train.features.shape == (3, 9)
    with pytest.raises(DataError, match=r"Can't read .*a\.libsvm: .*3.*4 features.* Expected LIBSVM text"):
        read_svmlight(file, features=3)


def test_a_regression_keeps_its_numbers(tmp_path: Path):
    file = written(tmp_path, "0.5 1:1\n-2 1:2\n")

    labels = read_svmlight(file, classes=False).train.labels

    assert labels.tolist() == [0.5, -2]
    assert labels.dtype == np.float32
    with pytest.raises(DataError, match=r"The label of .*a\.libsvm holds 0\.5; .* classes=False"):
        read_svmlight(file)


def test_a_packed_file_in_memory_is_the_same(tmp_path: Path):
    folder = at(f"memory://{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    (folder / "a.bz2").write_bytes(bz2.compress(TEXT.encode()))

    assert read_svmlight(f"{folder}/a.bz2").digest() == read_svmlight(written(tmp_path, TEXT)).digest()


@pytest.mark.parametrize(
    "text",
    [
        "1 3:1 11:",
        "1 3:1 2:1\n",
        "1 3:one\n",
        "3:1 4:1\n",
        "cat 3:1\n",
        "1,2,3\n",
        "<html>404</html>",
        "1 -4:1\n",
        "1 99999999999999999999:1\n",
    ],
)
def test_what_is_not_libsvm_is_refused(tmp_path: Path, text: str):
    with pytest.raises(DataError, match=r"Can't read .*a\.libsvm: .*Expected LIBSVM text: lines like"):
        read_svmlight(written(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 10)

    with pytest.raises(DataError, match=r"Can't read .*a: "):
        read_svmlight(tmp_path / "a")


def test_an_empty_file_is_refused(tmp_path: Path):
    with pytest.raises(DataError):
        read_svmlight(written(tmp_path, ""))


def test_no_file_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"Can't read .*nowhere: No such file"):
        read_svmlight(tmp_path / "nowhere")


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_values_that_are_no_finite_float32_are_refused(tmp_path: Path, value: str):
    with pytest.raises(DataError, match="features of example 1 hold NaN or infinity"):
        read_svmlight(written(tmp_path, f"1 1:1\n0 1:{value}\n"))


@pytest.mark.parametrize("label", ["nan", "inf"])
def test_a_missing_or_endless_label_is_refused(tmp_path: Path, label: str):
    with pytest.raises(DataError, match=f"holds {label}; classes are whole numbers"):
        read_svmlight(written(tmp_path, f"1 1:1\n{label} 1:1\n"))


def test_rows_too_wide_to_be_dense_are_refused_with_their_size(tmp_path: Path):
    with pytest.raises(DataError, match=r"2 examples of 2,000,000,000 features, 16,000,000,000 bytes as dense rows"):
        read_svmlight(written(tmp_path, "1 2000000000:1\n0 1:1\n"))

"""CSV and Parquet tables become features and labels, or are refused with the column and the row."""

import gzip
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from plain_loop import trained
from pyarrow import csv, parquet
from sklearn.datasets import load_iris

from paceline.core.errors import DataError
from paceline.data.files import at
from paceline.data.table import read_table
from paceline.tasks.task import load_task

EXAMPLE = Path(__file__).parent.parent / "examples" / "flowers.py"
TEXT = "length,species,width\n1.5,rose,2\n3,iris,-4\n0,rose,1e-3\n"


def written(folder: Path, text: str, name: str = "a.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_columns_become_features_and_texts_class_numbers(tmp_path: Path):
    dataset = read_table(written(tmp_path, TEXT), "species")

    assert dataset.train.features.tolist() == [[1.5, 2], [3, -4], [0, np.float32(1e-3)]]
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert dataset.train.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tsv", TEXT.replace(",", "\t").encode()), ("a.csv.gz", gzip.compress(TEXT.encode())), ("A.CSV", TEXT.encode())],
)
def test_other_forms_of_the_same_table_are_the_same(tmp_path: Path, name: str, content: bytes):
    folder = at(f"memory://{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)

    expected = read_table(written(tmp_path, TEXT), "species").digest()

    assert read_table(f"{folder}/{name}", "species").digest() == expected


def parquet_bytes(**columns: object) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.array([7, -1, 7], pa.int8()),
        pa.array([2.0, 1.0, 2.0]),
        pa.array([True, False, True]),
    ],
)
def test_a_parquet_file_has_labels_of_any_type(tmp_path: Path, labels: pa.Array):
    content = parquet_bytes(a=[1, 2, 3], b=pa.array([0.5, 1, 2], pa.float32()), c=[True, False, True], y=labels)
    (tmp_path / "a.parquet").write_bytes(content)

    dataset = read_table(tmp_path / "a.parquet", "y")

    assert dataset.train.features.tolist() == [[1, 0.5, 1], [2, 1, 0], [3, 2, 1]]
    assert dataset.train.labels.tolist() == [1, 0, 1]


def test_a_folder_of_parts_is_one_table_in_order_of_names(tmp_path: Path):
    for folder in (tmp_path, at(f"memory://{uuid.uuid4().hex}")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-00001.parquet").write_bytes(parquet_bytes(x=[3.0], y=["b"]))
        (folder / "part-00000.parquet").write_bytes(parquet_bytes(x=[1.0, 2.0], y=["a", "b"]))
        (folder / "_SUCCESS").write_bytes(b"")

        dataset = read_table(str(folder), "y")

        assert dataset.train.features.ravel().tolist() == [1, 2, 3]
        assert dataset.train.labels.tolist() == [0, 1, 1]


def test_a_test_table_has_its_columns_in_any_order(tmp_path: Path):
    test = written(tmp_path, "species,width,length\niris,1,2\n", "test.csv")

    dataset = read_table(written(tmp_path, TEXT), "species", test)

    assert dataset.test is not None
    assert dataset.test.features.tolist() == [[2, 1]]
    assert dataset.test.labels.tolist() == [0]


def test_columns_can_be_chosen(tmp_path: Path):
    assert read_table(written(tmp_path, TEXT), "species", columns=["width"]).train.features.shape == (3, 1)


def test_a_regression_keeps_its_numbers(tmp_path: Path):
    file = written(tmp_path, TEXT)

    labels = read_table(file, "length", columns=["width"], classes=False).train.labels

    assert labels.tolist() == [1.5, 3, 0]
    assert labels.dtype == np.float32
    with pytest.raises(DataError, match=r"Column 'species' of .* holds 'rose', which is no number; a regression"):
        read_table(file, "species", columns=["width"], classes=False)


def test_one_class_only_is_read(tmp_path: Path):
    assert read_table(written(tmp_path, "x,y\n1,a\n2,a\n"), "y").train.labels.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,z\n1,2\n", r"a\.csv has no column 'y'; it has x, z\."),
        ("y\n1\n", r"has no column of features beside the label 'y'"),
        ("x,y\n1,a\n,b\n", r"Column 'x' of .*a\.csv is empty in example 1; fill it"),
        ("x,y\n1,a\nNaN,b\n", r"Column 'x' of .*a\.csv is empty in example 1; fill it"),
        ("x,y\n1,a\n2,\n", r"Column 'y' of .*a\.csv is empty in example 1; fill it"),
        ("x,y\n1,\n2,\n", r"Column 'y' of .*a\.csv is empty in example 0; fill it"),
        ("x,y\n1,a\ninf,b\n", r"Column 'x' of .*a\.csv holds inf in example 1, no finite float32"),
        ("x,y\n1,a\n1e300,b\n", r"Column 'x' of .*a\.csv holds 1e\+300 in example 1, no finite float32"),
        ("x,y\nred,a\n", r"Column 'x' of .*a\.csv holds 'red', which is no number; encode it, or leave it out"),
        ("x,y\n2026-01-01,a\n", r"Column 'x' of .*a\.csv holds .*2026.* no number"),
        ("x,y\n1,0.5\n", r"Column 'y' of .*a\.csv holds 0\.5; .* For a regression give classes=False"),
        ("x,y\n1,2026-01-01\n", r"Column 'y' of .*a\.csv holds .*2026.*; classes are whole numbers or text"),
        ("x,x,y\n1,2,3\n", r"several columns called 'x'"),
        ("x,y\n1,2\n3\n", r"Can't read .*a\.csv: .*Expected 2 columns, got 1.*Expected a table"),
        ("", r"Can't read .*a\.csv: .*mpty.*Expected a table"),
        ("x,y\n", r"a\.csv has no examples, only names of columns"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path, text), "y")


def test_labels_of_two_kinds_are_refused(tmp_path: Path):
    test = written(tmp_path, "x,y\n1,a\n", "test.csv")

    with pytest.raises(DataError, match="numbers in one set and text in the other"):
        read_table(written(tmp_path, "x,y\n1,3\n"), "y", test)


def test_a_cut_or_changed_parquet_file_is_refused(tmp_path: Path):
    content = parquet_bytes(x=np.linspace(0, 1, 50), y=np.arange(50) % 3)
    file = tmp_path / "a.parquet"
    rng = np.random.default_rng(0)

    for cut in rng.integers(0, len(content), 20):
        file.write_bytes(content[:cut])
        with pytest.raises(DataError, match=r"Can't read .*a\.parquet"):
            read_table(file, "y")
    for place in rng.integers(100, 300, 10):  # in the values of the first column, whose page has a checksum
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"Can't read .*a\.parquet: .*(hecksum|CRC)"):
            read_table(file, "y")


def test_an_index_that_pandas_saved_is_no_feature(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(x=[5, 6], y=[0, 1], __index_level_0__=[8, 9]))

    assert read_table(written(tmp_path, ",x,y\n0,5,a\n1,6,b\n"), "y").train.features.tolist() == [[5], [6]]
    assert read_table(tmp_path / "a.parquet", "y").train.features.tolist() == [[5], [6]]


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.parquet.zip"])
def test_an_unknown_ending_is_refused(tmp_path: Path, name: str):
    with pytest.raises(DataError, match=r"ends in none of \.csv, \.tsv, \.parquet"):
        read_table(written(tmp_path, TEXT, name), "species")


def test_nothing_there_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"Can't read .*nowhere\.csv: No such file"):
        read_table(tmp_path / "nowhere.csv", "y")
    with pytest.raises(DataError, match=r"holds no file that ends in \.csv"):
        read_table(tmp_path, "y")


def test_the_example_task_learns_from_a_table(tmp_path: Path):
    flowers = load_iris()
    table = {name: flowers.data[:, n] for n, name in enumerate(flowers.feature_names)}
    table["species"] = flowers.target_names[flowers.target].tolist()
    csv.write_csv(pa.table(table), tmp_path / "flowers.csv")
    task = load_task(str(EXAMPLE))

    train = task.data(str(tmp_path / "flowers.csv")).train
    replica = trained(task, train)

    assert train.labels.tolist() == flowers.target.tolist()
    assert replica.score(train.features, train.labels)["accuracy"] > 0.9

"""CSV and Parquet tables become features and labels, or are refused with the column and the row."""

import gzip
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.datasets import load_iris

from paceline.core.errors import DataError
from paceline.data import csv_blocks, out_of_core, table
from paceline.data.columns import Column, Columns
from paceline.data.files import at
from paceline.data.out_of_core import is_mapped
from paceline.data.table import read_table
from paceline.tasks.task import load_task
from tests.support.plain_loop import trained
from tests.support.tree import ROOT

f32 = np.float32
EXAMPLE = ROOT / "examples" / "flowers.py"
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
    assert dataset.classes == ("iris", "rose")
    assert dataset.columns == Columns(
        label="species",
        features=(Column(name="length", fill=1.5), Column(name="width", fill=float(f32(-1.999 / 3)))),
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tsv", TEXT.replace(",", "\t").encode()), ("a.csv.gz", gzip.compress(TEXT.encode())), ("A.CSV", TEXT.encode())],
    ids=["tsv", "csv.gz", "CSV"],
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
    assert dataset.classes in (("a", "b"), ("-1", "7"), ("1", "2"), ("False", "True"))


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

    assert dataset.test.features.tolist() == [[2, 1]]
    assert dataset.test.labels.tolist() == [0]


def test_columns_can_be_chosen(tmp_path: Path):
    assert read_table(written(tmp_path, TEXT), "species", columns=["width"]).train.features.shape == (3, 1)


def test_a_regression_keeps_its_numbers(tmp_path: Path):
    file = written(tmp_path, TEXT)

    labels = read_table(file, "length", columns=["width"], classes=False).train.labels

    assert labels.tolist() == [1.5, 3, 0]
    assert labels.dtype == np.float32
    assert read_table(file, "length", columns=["width"], classes=False).classes is None
    with pytest.raises(DataError, match=r"Column 'species' of .* holds 'rose' in line 2, which is not a number; a reg"):
        read_table(file, "species", columns=["width"], classes=False)


def test_a_regression_takes_the_decimals_of_a_database(tmp_path: Path):
    prices = pa.array([Decimal("10.25"), Decimal("7.50")], pa.decimal128(10, 2))
    parquet.write_table(pa.table({"x": [1.0, 2.0], "price": prices}), tmp_path / "a.parquet")

    assert read_table(tmp_path / "a.parquet", "price", classes=False).train.labels.tolist() == [10.25, 7.5]


@pytest.mark.parametrize("cell", ["2024-01-05", "08:30:00", "2024-01-05 08:30:00"])
def test_a_regression_of_times_is_refused(tmp_path: Path, cell: str):
    with pytest.raises(DataError, match=r"Column 'y' of .*a\.csv holds .* in line 2, .*; a regression"):
        read_table(written(tmp_path, f"x,y\n1,{cell}\n2,{cell}\n"), "y", classes=False)


@pytest.mark.parametrize(
    ("train", "other"),
    [
        ("train.csv", "test.csv"),
        ("train.csv", "val.csv"),
        ("train.csv", "Validation.csv"),
        ("train-00000-of-00001.csv", "test-00000-of-00001.csv"),
    ],
)
def test_the_sets_of_a_folder_are_not_read_as_one_table(tmp_path: Path, train: str, other: str):
    for name in (train, other):
        written(tmp_path, "x,y\n1,a\n2,b\n", name)

    with pytest.raises(DataError, match=rf"holds sets, .* \(.*read_table\('.*{train}', \.\.\., test="):
        read_table(tmp_path, "y")


@pytest.mark.parametrize(
    "text",
    [lambda row: f'"of{chr(10)}{chr(10) * (row % 7)}lines, {row}"', {3: '5" disk', 20: '"a\nb"'}.get],
    ids=["cells in quotes with line ends", "a quote within a cell is none of these"],
)
def test_a_cell_in_quotes_may_hold_line_ends_wherever_a_large_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Callable[[int], str | None]
):
    monkeypatch.setattr(csv_blocks, "PIECE_BYTES", 50)
    rows = [f"{text(row) or 'text'},{row},{'ab'[row % 2]}" for row in range(60)]

    found = read_table(written(tmp_path, "\n".join(["text,x,y", *rows, ""])), "y", columns=["x"])

    assert found.train.features[:, 0].tolist() == [*range(60)]
    assert found.train.labels.tolist() == [row % 2 for row in range(60)]


@pytest.mark.parametrize(
    ("text", "labels"),
    [("1,a\n2,a\n", [0, 0]), ('1,2\n1,""\n1,1\n', [2, 0, 1]), ("1,2\n1,07\n1,7.0\n", [0, 1, 1])],
    ids=["one class only", "an empty text in quotes", "numbers written in two ways"],
)
def test_labels_are_numbered(tmp_path: Path, text: str, labels: list[int]):
    assert read_table(written(tmp_path, f"x,y\n{text}"), "y").train.labels.tolist() == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,z\n1,2\n", r"a\.csv has no column 'y'; it has x, z\."),
        ("y\n1\n", r"has no feature column, only the label 'y'"),
        ("x,y\n,a\nNaN,b\n", r"Column 'x' of .*a\.csv has no value in any row; fill it, or leave it out"),
        ("x,y\n1,a\n2,\n", r"Column 'y' of .*a\.csv is empty in line 3; every example needs a label: fill it"),
        ("x,y\n1,\n2,\n", r"Column 'y' of .*a\.csv is empty in line 2; every example"),
        ("x,y\n1,a\n2, \n3,b\n", r"Column 'y' of .*a\.csv is empty in line 3; every example"),
        ("x,y\n\n1,a\n\r\n\n?,\n", r"Column 'y' of .*a\.csv is empty in line 6;"),
        ("x,y\n1,a\ninf,b\n", r"Column 'x' of .*a\.csv holds inf in line 3, which is not a finite float32"),
        ("x,y\n1,a\n1e300,b\n", r"Column 'x' of .*a\.csv holds 1e\+300 in line 3, which is not a finite float32"),
        ("x,y\n1,a\nred,b\n", r"holds 'red' in line 3, .* but the others are numbers; correct it"),
        ("x,y\nblue,a\n7,b\n", r"holds 'blue' in line 2, .* name it in categories=\[\.\.\.\]"),
        ("x,y\n" + "".join(f"n{n},a\n" for n in range(101)), "'n0' in line 2, .* 100 different"),
        ("x,y\n,a\n2026-01-01,b\n", "'x' of .* holds a date or time, '2026-01-01', in line 3, which is"),
        ("x,y\n01.02.2026,a\n", r"holds a date or time, '01\.02\.2026', in line 2, .*; make numbers"),
        ("x,y\n08:30:00,a\n", r"Column 'x' of .* holds a date or time, '08:30:00', in line 2, which is not a number"),
        ("x,y\n12 %,a\n", r"holds a number as people write it, '12 %', in line 2, .*; write it like 1234\.5"),
        ('x,y\n"1,234",a\n', r"holds a number as people write it, '1,234', in line 2"),
        ("u,v,w,y\n1,2026-01-01,5 %,a\n", r"'v' .* a date or time, .*\. In total, 2 columns can't be read: v, w\."),
        ("x,y\n1,0.5\n", r"Column 'y' of .*a\.csv holds 0\.5; .* For a regression give classes=False"),
        ("x,y\n1,2026-01-01\n", r"Column 'y' of .*a\.csv holds .*2026.*; expected whole numbers or text"),
        ("x,x,y\n1,2,3\n", r"several columns called 'x'"),
        ("Y,x\n1,2\n", r"has no column 'y'; it has Y, x\. Did you mean 'Y'\?"),
        ("1.5,2,a\n3,4,b\n", r"it has 1\.5, 2, a\. Its first line seems to be an example: put a"),
        ("x y\n1 2\n", r"has no column 'y'; it has x y\. Its cells seem not to be separated by any of , ; tab \|"),
        ('x,y\n1,a\n"2,a\n' + "3,b\n" * 9, r"a\.csv: line 3 \('2,a\\n3,b.*: Expected 2 columns, got 1\."),
        ('x,c,y\n1,"u\nv",a\n2,"w\n\nx",b\nred,u,b\n', r"holds 'red' in line 7, which is not a number"),
        ("x,y\n1,2\n3\n", r"Can't read .*a\.csv: line 3 \('3'\): .*Expected 2 columns, got 1.*Expected a table"),
        ("", r"a\.csv is empty\. Expected a table"),
        ("x,y\n", r"a\.csv has only column names, but no examples"),
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


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, and a file for what was read."""
    monkeypatch.setattr(csv_blocks, "PIECE_BYTES", 50)
    monkeypatch.setattr(table, "PIECE_BYTES", 50)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 100)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
@pytest.mark.parametrize("kind", [str, int])
def test_a_table_larger_than_memory_is_mapped_and_the_same(
    tmp_path: Path, small_pieces: None, name: str, kind: type[str] | type[int]
):
    rng = np.random.default_rng(0)
    whole = {"x": rng.random(300).astype(np.float32), "n": rng.integers(-9, 9, 300)}
    labels = [kind(label) for label in rng.integers(5, 15, 300)]
    rows = pa.table(whole | {"y": pa.array(labels).dictionary_encode() if kind is str else labels})
    if name.endswith("parquet"):
        parquet.write_table(rows, tmp_path / name, row_group_size=70)
    else:
        with pa.output_stream(tmp_path / name) as stream:
            csv.write_csv(rows.set_column(2, "y", pa.array(labels)), stream)

    train = read_table(tmp_path / name, "y").train

    assert is_mapped(train.features)
    assert np.array_equal(train.features, np.stack([whole["x"], whole["n"].astype(np.float32)], axis=1))
    numbers = kind is int or name != "a.parquet"  # a CSV does not tell numbers from texts
    in_order = sorted(set(labels), key=int if numbers else str)
    assert train.labels.tolist() == [in_order.index(label) for label in labels]


def test_a_column_may_change_its_kind_of_numbers_in_a_later_block(tmp_path: Path, small_pieces: None):
    text = "x,y\n" + "1,0\n" * 30 + "0.5,1\n" * 30

    train = read_table(written(tmp_path, text), "y").train

    assert train.features.ravel().tolist() == [1.0] * 30 + [0.5] * 30
    assert train.labels.tolist() == [0] * 30 + [1] * 30


def test_labels_are_texts_where_one_in_a_later_block_is(tmp_path: Path, small_pieces: None):
    text = "x,y\n" + "1,10\n" * 30 + "1,9\n" * 30 + "1,x\n"

    assert read_table(written(tmp_path, text), "y").train.labels.tolist() == [0] * 30 + [1] * 30 + [2]
    assert read_table(written(tmp_path, text[: text.index("1,x")]), "y").train.labels.tolist() == [1] * 30 + [0] * 30


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,", r"Column 'y' of .* is empty in line 72; every example needs a label"),
        ("inf,a", r"Column 'x' of .* holds inf in line 72, which is not a finite float32"),
        ("red,a", r"Column 'x' of .* holds 'red' in line 72, which is not a number"),
        ("1", r"Can't read .*: line 72 \('1'\): .*Expected 2 columns, got 1"),
        ("1,a,3", r"Can't read .*: line 72 \('1,a,3'\): .*Expected 2 columns, got 3"),
    ],
)
def test_an_example_in_a_later_block_keeps_its_number(tmp_path: Path, small_pieces: None, row: str, message: str):
    rows = [*["1,a"] * 70, row, *["2,b"] * 9]

    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path, "x,y\n" + "\n".join(rows)), "y")


def test_a_label_is_empty_in_a_later_piece_of_a_parquet_file(tmp_path: Path, small_pieces: None):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(y=[*[1] * 70, None], x=[0, *[1] * 70]))

    with pytest.raises(DataError, match=r"Column 'y' of .*a\.parquet is empty in example 70; every example"):
        read_table(tmp_path / "a.parquet", "y")


@pytest.mark.parametrize("labels", [[[1], [2]], [b"a", b"b"], [{"a": 1}, {"a": 2}]])
def test_labels_that_are_neither_numbers_nor_texts_are_refused(tmp_path: Path, labels: list[object]):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(x=[1, 2], y=labels))

    with pytest.raises(DataError, match=r"'y' of .*a\.parquet .* in example 0, of Arrow's type .*; expected num"):
        read_table(tmp_path / "a.parquet", "y")


def test_a_category_without_examples_is_no_class(tmp_path: Path):
    labels = pa.DictionaryArray.from_arrays([2, 0, 2], ["a", "b", "c"])
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(x=[1, 2, 3], y=labels))

    assert read_table(tmp_path / "a.parquet", "y").train.labels.tolist() == [1, 0, 1]


def test_parts_of_a_table_have_the_same_columns_in_any_order(tmp_path: Path):
    written(tmp_path, "x,z,y\n1,2,a\n", "0.csv")
    written(tmp_path, "y,z,x\nb,4,3\n", "1.csv")

    assert read_table(tmp_path, "y").train.features.tolist() == [[1, 2], [3, 4]]

    written(tmp_path, "y,z\nb,4\n", "2.csv")
    with pytest.raises(DataError, match=r"2\.csv has the columns y, z, .*0\.csv has x, z, y; all parts of a table"):
        read_table(tmp_path, "y")


def test_a_folder_with_a_table_in_two_forms_is_refused(tmp_path: Path):
    written(tmp_path, TEXT)
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(x=[1], y=[1]))

    with pytest.raises(DataError, match=r"holds tables of two formats, a\.csv and a\.parquet; keep only one"):
        read_table(tmp_path, "y")


def test_an_index_that_pandas_saved_is_no_feature(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(x=[5, 6], y=[0, 1], __index_level_0__=[8, 9]))

    assert read_table(tmp_path / "a.parquet", "y").train.features.tolist() == [[5], [6]]
    assert read_table(written(tmp_path, ",x,y\n0,5,a\n1,6,b\n"), "y").train.features.tolist() == [[5], [6]]
    file = written(tmp_path, "Unnamed: 0,Unnamed: 0.1,x,y\n0,0,5,a\n1,1,6,b\n")
    assert read_table(file, "y").train.features.tolist() == [[5], [6]]
    assert read_table(file, "y", columns=["Unnamed: 0"]).train.features.tolist() == [[0], [1]]


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

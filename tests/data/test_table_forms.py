"""Tables as people have them: texts, gaps, other delimiters and encodings, and new ones for a model that is trained."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from paceline.core.errors import DataError, DiskError
from paceline.core.settings.table import TableConfig
from paceline.data import csv_blocks, files, out_of_core, table
from paceline.data.columns import Columns
from paceline.data.hashed_table import read_hashed
from paceline.data.out_of_core import is_mapped
from paceline.data.table import read_like, read_table
from tests.data.test_table import TEXT, f32, parquet_bytes, written


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, and a file for what was read."""
    for module in (csv_blocks, files, table, out_of_core):
        monkeypatch.setattr(module, "PIECE_BYTES", 50)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 100)


def test_texts_become_a_feature_for_each_category(tmp_path: Path):
    file = written(tmp_path, "n,colour,y\n1,red,a\n2,,b\n3, blue,a\n4,red,b\n")

    dataset = read_table(file, "y")

    assert dataset.columns.names == ("n", "colour=blue", "colour=red")
    assert dataset.train.features.tolist() == [[1, 0, 1], [2, 0, 0], [3, 1, 0], [4, 0, 1]]


def test_an_empty_number_becomes_the_mean_of_its_column_in_training(tmp_path: Path):
    file = written(tmp_path, "u,v,y\n1,5,a\n,6,b\nNA,7,a\n4,?,b\n")
    test = written(tmp_path, "u,v,y\n,,a\n100,100,b\n", "test.csv")

    dataset = read_table(file, "y", test)

    assert dataset.train.features.tolist() == [[1, 5], [2.5, 6], [2.5, 7], [4, 6]]
    assert dataset.test.features.tolist() == [[2.5, 6], [100, 100]]


def test_whole_numbers_beyond_those_of_float64_are_named_too(tmp_path: Path) -> None:
    high, low = 2**63 + 1, 2**53
    numbers = pa.table({"t": pa.array([high, high + 4, None], pa.uint64()), "y": ["a", "b", "b"]})
    parquet.write_table(numbers, tmp_path / "t.parquet")
    text = written(tmp_path, f"t,y\n{low},a\n{low + 1},b\n,b\n{low + 1},a\n")

    for file in (tmp_path / "t.parquet", text):
        (said,) = [line for line in read_table(file, "y").as_read if "rounded" in line]
        assert "become the same as another: 1 of 't'" in said


def test_numbers_that_become_the_same_as_others_are_named(tmp_path: Path):
    times = written(tmp_path, "t,n,y\n1700000001,1,a\n1700000002,2,b\n1700009000,3,b\n")
    apart = written(tmp_path, "t,n,y\n1.5e20,1,a\n2.5e20,2,b\n", "apart.csv")

    (said,) = [line for line in read_table(times, "y").as_read if "rounded" in line]
    assert "numbers above 16,777,216 are rounded, and become the same as another: 1 of 't'; subtract what" in said
    assert not [line for line in read_table(apart, "y").as_read if "rounded" in line]
    assert not [line for line in read_hashed(times, TableConfig(label="y")).as_read if "rounded" in line], "from 0 to 1"


def test_columns_of_numbers_that_no_model_of_torch_learns_from_are_named(tmp_path: Path):
    file = written(tmp_path, "id,t,n,y\n-20000,1.7e9,1,a\n3,1.71e9,2,b\n5,1.7e9,10000,b\n")

    (said,) = [line for line in read_table(file, "y").as_read if "large" in line]

    assert "large numbers: 'id' (-20000 to 5), 't' (1.7e+09 to 1.71e+09); a network learns from about -1 to 1" in said
    assert not [line for line in read_hashed(file, TableConfig(label="y")).as_read if "large" in line], "from 0 to 1"


@pytest.mark.parametrize(("hint", "delimiter"), [("sep=;", ";"), ('"sep=,"', ","), ("\ufeffsep=|", "|")])
def test_the_line_in_which_a_spreadsheet_names_its_separator_is_none_of_the_table(
    tmp_path: Path, hint: str, delimiter: str
):
    rows = ["a,b,y", "1,2,u", "3,4,v"]
    file = written(tmp_path, "\r\n".join([hint, *(row.replace(",", delimiter) for row in rows)]))

    dataset = read_table(file, "y")

    assert dataset.train.features.tolist() == [[1, 2], [3, 4]]
    assert dataset.classes == ("u", "v")
    with pytest.raises(DataError, match="in line 4"):
        read_table(written(tmp_path, f"{hint}\na{delimiter}y\n1{delimiter}u\nx{delimiter}v\n", "bad.csv"), "y")


def test_texts_of_a_parquet_file_may_be_views(tmp_path: Path):
    views = pa.array(["r", "g", "r"], pa.string_view())
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(colour=views, y=views))

    dataset = read_table(tmp_path / "a.parquet", "y")

    assert dataset.train.features.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert dataset.classes == ("g", "r")


def test_a_test_table_has_the_categories_of_training(tmp_path: Path):
    file = written(tmp_path, "c,y\nu,a\nv,b\n")
    test = written(tmp_path, "c,y\nv,a\n7,b\nu,b\n", "test.csv")

    dataset = read_table(file, "y", test)

    assert dataset.test.features.tolist() == [[0, 1], [0, 0], [1, 0]]


def test_numbers_that_are_names_can_be_called_so(tmp_path: Path):
    file = written(tmp_path, "zip,n,y\n01,1,a\n7,2,b\nx,3,b\n")
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(zip=[7, 1, 7], y=[0, 1, 1]))

    from_csv = read_table(file, "y", categories=["zip"])

    assert from_csv.columns.names == ("zip=01", "zip=7", "zip=x", "n")
    from_parquet = read_table(tmp_path / "a.parquet", "y", categories=["zip"])
    assert from_parquet.train.features.tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(DataError, match=r"has no column 'zap'; it has zip, n, y\. Did you mean 'zip'"):
        read_table(file, "y", categories=["zap"])


def test_truth_is_a_number_whichever_way_it_is_written(tmp_path: Path):
    file = written(tmp_path, 'u,v,y\ntrue,True,a\nfalse,False,b\n,"",b\n')

    assert read_table(file, "y").train.features.tolist() == [[1, 1], [0, 0], [0.5, 0.5]]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_table_with_texts_and_gaps_larger_than_memory_is_mapped_and_the_same(
    tmp_path: Path, small_pieces: None, name: str
):
    rng = np.random.default_rng(0)
    numbers, colours = rng.integers(0, 9, 300), rng.choice(["red", "blue", "green", ""], 300)
    lines = [f"{'' if n == 8 else n},{colour},{n % 2}" for n, colour in zip(numbers, colours, strict=True)]
    content = "\n".join(["n,colour,y", *lines]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)

    train = read_table(tmp_path / name, "y").train

    mean = f32(numbers[numbers < 8].mean())
    assert is_mapped(train.features)
    assert np.array_equal(train.features[:, 0], np.where(numbers == 8, mean, numbers).astype(f32))
    assert np.array_equal(train.features[:, 1:], colours[:, None] == ["blue", "green", "red"])


def test_a_point_between_thousands_is_no_fraction_where_fractions_have_commas(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x;y\n" + "0,5;a\n" * 200 + "1.234;b\n")

    with pytest.raises(DataError, match=r"Column 'x' of .* holds '1\.234' in line 202, which is not a number"):
        read_table(tmp_path / "a.csv", "y")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (TEXT.replace(",", ";").encode(), "a.csv"),
        (TEXT.replace(",", "|").encode(), "a.csv"),
        (TEXT.replace(",", "\t").encode(), "a.csv"),
        (TEXT.encode(), "a.tsv"),
        (TEXT.replace(",", ";").replace(".", ",").encode(), "a.csv"),
        (b"\xef\xbb\xbf" + TEXT.encode(), "a.csv"),
        (TEXT.replace(",", "\t").replace("\n", "\r\n").encode("utf-16"), "a.csv"),
        (TEXT.replace(",", " , ").encode(), "a.csv"),
        (b"\r\n" + TEXT.encode(), "a.csv"),
    ],
    ids=["semicolon", "bar", "tab", "comma.tsv", "decimal comma", "utf-8 mark", "utf-16", "blanks", "empty line"],
)
def test_a_csv_that_is_written_otherwise_is_the_same(tmp_path: Path, content: bytes, name: str):
    (tmp_path / name).write_bytes(content)

    found = read_table(tmp_path / name, "species")

    assert found.digest() == read_table(written(tmp_path, TEXT, "plain.csv"), "species").digest()


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
def test_letters_are_read_in_whichever_encoding(tmp_path: Path, small_pieces: None, encoding: str):
    rows = "".join(f"{n},{'süß' if n == 40 else 'bitter'},é\n" if n > 30 else f"{n},bitter,e\n" for n in range(60))
    (tmp_path / "a.csv").write_bytes(f"n,taste,y\n{rows}".encode(encoding))

    dataset = read_table(tmp_path / "a.csv", "y")

    assert dataset.classes == ("e", "é")
    assert dataset.columns.names[1:] == ("taste=bitter", "taste=süß")


def test_a_full_temporary_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "wb", buffering=0))  # noqa: SIM115

    with pytest.raises(DiskError, match=r"Can't keep a large data set in .*: No space left on device"):
        read_table(tmp_path / "a.csv.gz", "species")


def test_a_csv_in_two_encodings_or_in_none_is_refused(tmp_path: Path, small_pieces: None):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\xc3\xa4\n" + b"1,a\n" * 30 + b"1,\xe4\n")
    with pytest.raises(DataError, match=r"line 33 .*byte 0xe4 is no UTF-8, though .*; save the whole"):
        read_table(tmp_path / "a.csv", "y")

    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\x81\n")
    with pytest.raises(DataError, match=r"line 2 .*byte 0x81 is neither UTF-8 nor .*; save .* as UTF-8"):
        read_table(tmp_path / "a.csv", "y")


def test_what_was_guessed_and_what_became_of_texts_and_gaps_is_told(tmp_path: Path):
    text = "n;colour;v;y\n1;süß;0,5;a\n;;0,5;b\n3;süß;;b\n"
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    test = written(tmp_path, "y,v,colour,n\na,,rot,\nb,1.5,blau,2\n", "test.csv")

    dataset = read_table(tmp_path / "a.csv", "y", test)

    assert dataset.as_read == (
        "a.csv: cells separated by semicolons, fractions with commas, Windows-1252; 3 columns besides the label 'y' (2 classes)"
        " make 3 features",
        "a.csv: a feature for each text of 'colour' (1); empty cells become the mean of their column: 1 of 'n', 1 of 'v'; "
        "empty cells are of no category: 1 of 'colour'",
        "test.csv: cells separated by commas, UTF-8",
        "test.csv: empty cells become the mean of their column in training: 1 of 'n', 1 of 'v'; texts that the training data "
        "lack are of no category: 2 of 'colour' ('rot', 'blau')",
    )


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.csv", "x\ty\n1\t2\n".encode("utf-16"), "cells separated by tabs, UTF-16"),
        ("a.csv", b"x|y\n1|2\n", "cells separated by bars, UTF-8"),
        ("a.parquet", parquet_bytes(x=[1], y=[2]), "1 columns beside"),
    ],
    ids=["tab", "bar", "parquet"],
)
def test_how_a_file_is_written_is_told(tmp_path: Path, name: str, content: bytes, form: str):
    (tmp_path / name).write_bytes(content)

    assert read_table(tmp_path / name, "y", classes=False).as_read[0].startswith(f"{name}: {form}")


def test_many_columns_with_gaps_are_not_all_named(tmp_path: Path):
    names = [f"c{number}" for number in range(9)]
    file = written(tmp_path, f"{','.join(names)},y\n{'1,' * 9}a\n{',' * 9}b\n")

    assert (
        read_table(file, "y").as_read[-1].endswith("1 of 'c0', 1 of 'c1', 1 of 'c2', 1 of 'c3', 1 of 'c4' and 4 more")
    )


@pytest.mark.parametrize("names", ["\u00c5lder;K\u00f6n;y", "miesi\u0105c;kategoria;y"])
def test_letters_whose_bytes_look_like_line_ends_do_not_hide_the_separator(tmp_path: Path, names: str):
    read = read_table(written(tmp_path, f"{names}\n1;x;a\n2;z;b\n"), "y")

    assert [column.name for column in read.columns.features] == names.split(";")[:2]


def test_numbers_beyond_what_a_fraction_holds_are_rounded(tmp_path: Path):
    read = read_table(written(tmp_path, "id,y\n1234567890123456789,a\n1,b\n"), "y")

    assert read.train.features[:, 0].tolist() == [np.float32(1234567890123456789), 1.0]


def test_the_label_must_be_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"read_table needs label=\.\.\., .*a\.csv has length, species, width\."):
        read_table(written(tmp_path, TEXT))


def test_a_new_table_is_read_as_the_one_for_training_with_or_without_labels(tmp_path: Path):
    dataset = read_table(written(tmp_path, "n,colour,y\n1,red,b\n3,blue,a\n"), "y")
    columns = Columns.model_validate_json(dataset.columns.model_dump_json())

    features, labels = read_like(written(tmp_path, "colour;n\nred;\ngreen;2,5\n", "new.csv"), columns, dataset.classes)
    assert features.tolist() == [[2, 0, 1], [2.5, 0, 0]]
    assert labels is None

    _, labels = read_like(written(tmp_path, "y,colour,n\nb,red,1\nb,blue,1\n", "new.csv"), columns, dataset.classes)
    assert labels.tolist() == [1, 1]

    _, labels = read_like(written(tmp_path, "y,colour,n\n,red,1\nb,blue,1\n", "new.csv"), columns, dataset.classes)
    assert labels is None

    _, labels = read_like(written(tmp_path, "y,colour,n\n2.5,red,1\n", "new.csv"), columns)
    assert labels.tolist() == [2.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour,y\nred,a\n", r"new\.csv has no column 'n'; it has colour, y\."),
        ("n,colour,y\nx,red,a\n", r"'n' of .*new\.csv holds 'x' in line 2, .* held numbers in training"),
        ("n,colour,y\n1,red,c\n", r"new\.csv has the class 'c', which the model does not know; it knows a, b\."),
    ],
)
def test_a_new_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str):
    dataset = read_table(written(tmp_path, "n,colour,y\n1,red,b\n3,blue,a\n"), "y")
    assert dataset.columns is not None

    with pytest.raises(DataError, match=message):
        read_like(written(tmp_path, text, "new.csv"), dataset.columns, dataset.classes)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_arrow_is_given_nothing_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str):
    """One of its threads may let go of it when the interpreter is ending; a Python object makes it abort then."""
    given: list[object] = []
    open_csv = csv.open_csv
    monkeypatch.setattr(csv, "open_csv", lambda source, *rest: given.append(source) or open_csv(source, *rest))
    (tmp_path / "a.csv").write_bytes(TEXT.replace("rose", "ros\u00e9").encode(encoding))

    read_table(tmp_path / "a.csv", "species")

    assert {type(source) for source in given} == {pa.OSFile}

"""CSVs of the real tables: what is read, and what is wrong in which line."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

from paceline.core.errors import DataError, UsageError
from paceline_papers.baseline.baseline import Baseline, Wanted, table
from paceline_papers.baseline.read_csv import read_csv

ROWS = 600


def made(name):
    """The made-up table with a CSV's texts for dates."""
    columns = table(name).made_up(ROWS, np.random.default_rng(0)).columns
    for date in table(name).dates:
        columns[date] = pc.strftime(pa.array(columns[date]), format=table(name).date_form)
    return pa.table(columns)


@pytest.fixture(params=["h1b", "fire"])
def written(request, tmp_path):
    rows = made(request.param)
    csv.write_csv(rows, tmp_path / "table.csv")
    return request.param, rows, tmp_path / "table.csv"


@pytest.fixture
def lines(tmp_path):
    """Lines of h1b's CSV, to be changed; write them back by `store`."""
    csv.write_csv(made("h1b"), tmp_path / "table.csv")
    return (tmp_path / "table.csv").read_bytes().splitlines(keepends=True)


def baseline(folder, lines, **given):
    (folder / "table.csv").write_bytes(b"".join(lines))
    return Baseline("h1b", 0, 0, folder / "out", str(folder / "table.csv"), **given)


def test_what_is_read_is_what_was_written(written):
    name, rows, file = written
    kind = table(name)
    found = read_csv(kind, kind.label, str(file))

    for text in (kind.label, *kind.texts):
        assert found[text].equals(rows[text].combine_chunks())
    for number in kind.numbers:
        assert found[number].to_pylist() == pytest.approx(rows[number].to_pylist(), nan_ok=True)
    for date in kind.dates:
        assert pc.strftime(found[date], format=kind.date_form).equals(rows[date].combine_chunks())


def test_a_real_table_is_split_and_trained_on(lines, tmp_path):
    made = baseline(tmp_path, lines)
    (point,) = made.train(Wanted(["tree"], ["sklearn"], [1], ["memory"]))

    assert made.split().train_rows + made.split().test_rows == ROWS
    assert made.split().best is None
    assert made.kept.about["data"].endswith("table.csv")
    assert point.kind == "tree"


def test_another_column_is_the_label(lines, tmp_path):
    split = baseline(tmp_path, lines, label="FULL_TIME_POSITION").split()

    assert set(split.classes) == {"Y", "N"}
    assert "CASE_STATUS" not in split.texts
    assert "FULL_TIME_POSITION" not in split.texts


def test_rows_without_a_label_are_left_out(lines, tmp_path):
    lines[1] = re.sub(rb'^"[^"]*"', b"", lines[1])
    split = baseline(tmp_path, lines).split()

    assert split.train_rows + split.test_rows == ROWS - 1


def wage(line, text):
    """The line with another wage, the third cell from the end."""
    return re.sub(rb"[^,]*(,[^,]*,[^,]*\n)$", text + rb"\1", line)


def change(lines, what):
    match what:
        case "label":
            lines[0] = lines[0].replace(b"CASE_STATUS", b"STATUS")
        case "column":
            lines[0] = lines[0].replace(b"WORKSITE", b"SITE")
        case "class":
            lines[1:] = [re.sub(rb'^"[^"]*"', b'"DENIED"', line) for line in lines[1:]]
        case "rows":
            del lines[1:]
        case "bytes":
            lines[4] = lines[4].replace(b"EMPLOYER", b"EMPLOYE\xc9")
        case "number":
            lines[6] = wage(lines[6], b'"a lot"')


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("label", "table.csv, line 1: there is no column 'CASE_STATUS', the label. It has STATUS"),
        ("column", "table.csv, line 1: there is no column 'WORKSITE'. It has"),
        ("class", "table.csv: All rows have DENIED as CASE_STATUS; expected two classes, or more"),
        ("rows", "table.csv: no row has a CASE_STATUS, the label. Fill the column"),
        ("bytes", "table.csv, line 5: byte 0xc9 is not UTF-8"),
        ("number", "table.csv, line 7: PREVAILING_WAGE is 'a lot'; expected a number, or an empty cell"),
    ],
)
def test_what_is_wrong_in_a_csv_is_told_with_file_and_line_and_nothing_is_written(lines, tmp_path, what, told):
    change(lines, what)

    with pytest.raises(DataError, match=re.escape(told)):
        baseline(tmp_path, lines).split()
    assert not (tmp_path / "out").exists()


def test_a_date_that_is_none_is_told(tmp_path):
    rows = made("fire")
    dates = rows["Received DtTm"].to_pylist()
    dates[8] = "yesterday"
    place = rows.column_names.index("Received DtTm")
    csv.write_csv(rows.set_column(place, "Received DtTm", pa.array(dates)), tmp_path / "table.csv")

    with pytest.raises(DataError, match=r"table.csv, line 10: Received DtTm is 'yesterday'; expected a date like %m"):
        read_csv(table("fire"), table("fire").label, str(tmp_path / "table.csv"))


def test_a_class_of_the_test_part_alone_is_refused(lines, tmp_path):
    is_train = np.random.default_rng([0, 1]).random(ROWS) < 0.7
    row = 1 + int(np.flatnonzero(~is_train)[0])
    lines[row] = re.sub(rb'^"[^"]*"', b'"PENDING"', lines[row])

    with pytest.raises(DataError, match=r"table.csv: CASE_STATUS: the class 'PENDING' has rows in the test part alone"):
        baseline(tmp_path, lines).split()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "data", "label", "told"),
    [
        ("h1b", None, None, "h1b needs --data, its CSV; h1b-like is made up and takes none"),
        ("h1b-like", "table.csv", None, "h1b needs --data"),
        ("h1b-like", None, "WAGE", "--label WAGE: expected CASE_STATUS, EMPLOYER_NAME"),
    ],
)
def test_a_command_that_fits_no_table_is_refused(tmp_path, name, data, label, told):
    with pytest.raises(UsageError, match=told):
        Baseline(name, 1_000, 0, tmp_path, data, label)


def test_a_file_that_is_missing_is_told(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        read_csv(table("h1b"), "CASE_STATUS", str(tmp_path / "nowhere.csv"))

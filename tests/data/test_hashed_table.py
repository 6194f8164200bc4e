"""Tables as sparse rows: texts and dates hashed, numbers scaled; the same rows give the same features everywhere."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.feature_extraction import FeatureHasher
from typer.testing import CliRunner

from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import TableConfig
from paceline.data import csv_blocks, hashed_table, out_of_core
from paceline.data.dataset import Dataset
from paceline.data.hashed_table import read_hashed
from paceline.data.table import read_like
from paceline.settings.load_settings import load
from paceline.sharder.sharding import app
from paceline.tasks.task import load_task
from paceline_papers.baseline.encodings.hash import BITS, Hash
from paceline_papers.baseline.split import write
from paceline_papers.baseline.tables.h1b import H1b

TEXT = "kind,city,price,since\nb,Oslo,1,2026-03-02\na,,5,2026-03-02T08:30:00\nb,São Paulo,3,\na,Oslo,,2025-12-31\n"
PLACES = 1 << 10


def how(**more: Any) -> TableConfig:
    return TableConfig(**{"label": "kind", "bits": 10, **more})


def written(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder / name


def hashed(*texts: str) -> Any:
    """The row of these texts by scikit-learn."""
    return FeatureHasher(PLACES, input_type="string", alternate_sign=False).transform([texts]).toarray()[0].tolist()


def same(one: Dataset, other: Dataset) -> bool:
    return (one.train.features != other.train.features).nnz == 0 and one.columns == other.columns


def test_texts_and_dates_have_the_places_that_scikit_learn_gives_them_and_numbers_lie_between_0_and_1(tmp_path: Path):
    found = read_hashed(written(tmp_path, TEXT), how())

    rows = found.train.features.toarray()
    midnight = hashed("city=Oslo", "since, month=3", "since, weekday=0", "since, hour=0")
    assert rows[0].tolist() == [*midnight, 0]
    assert rows[1].tolist() == [*hashed("city=(none)", "since, month=3", "since, weekday=0", "since, hour=8"), 1]
    none = [f"since, {part}=(none)" for part in ("month", "weekday", "hour")]
    assert rows[2].tolist() == [*hashed("city=São Paulo", *none), 0.5]
    assert rows[3, -1] == 0.5  # the mean
    assert found.train.features.dtype == np.float32
    assert found.train.labels.tolist() == [1, 0, 1, 0]
    assert found.classes == ("a", "b")
    assert found.as_read == (
        "a.csv: cells separated by commas, UTF-8; 3 columns besides the label 'kind' (2 classes: a, b) make 1,025 features",
        "a.csv: texts, hashed to 1,024 places: 'city'; dates, hashed by month, weekday and hour: 'since'; numbers, from 0 to "
        "1: 'price'; empty cells become the mean of their column: 1 of 'price'; empty cells count as the text '(none)': 1 of "
        "'city', 1 of 'since'",
    )


def test_a_csv_and_a_parquet_file_of_the_same_rows_are_the_same(tmp_path: Path):
    file = written(tmp_path, TEXT)
    rows = csv.read_csv(file, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    parquet.write_table(rows, tmp_path / "a.parquet")

    assert same(read_hashed(file, how()), read_hashed(tmp_path / "a.parquet", how()))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_letters_have_their_place_in_whichever_encoding(tmp_path: Path, encoding: str):
    other = written(tmp_path, TEXT.encode(encoding), "b.csv")

    assert same(read_hashed(written(tmp_path, TEXT), how()), read_hashed(other, how()))


def test_dates_in_another_form_are_read_as_it_says(tmp_path: Path):
    plain = TEXT.replace("T08:30:00", "")
    file = written(tmp_path, plain.replace("2026-03-02", "03/02/2026").replace("2025-12-31", "12/31/2025"))

    found = read_hashed(file, how(dates=["since"], date_form="%m/%d/%Y")).train.features
    assert (found != read_hashed(written(tmp_path, plain, "b.csv"), how()).train.features).nnz == 0
    with pytest.raises(DataError, match=r"'03/02/2026', in line 2.*name the column in dates=\[\.\.\.\]"):
        read_hashed(file, how())


def test_columns_that_are_named_are_categories_whatever_they_hold(tmp_path: Path):
    file = written(tmp_path, TEXT)

    found = read_hashed(file, how(categories=["city", "price"], columns=["city", "price"]))
    assert found.train.features[[0]].toarray()[0].tolist() == hashed("city=Oslo", "price=1")
    assert found.columns.width == PLACES


def test_a_test_table_and_a_new_one_are_read_as_the_training_table(tmp_path: Path):
    first = written(tmp_path, TEXT)
    other = written(tmp_path, "price,since,city,kind\n-9,2026-03-02,Rome,b\n9,,Oslo,a\n", "b.csv")

    found = read_hashed(first, how(), other)
    assert found.test.features[:, [-1]].toarray().ravel().tolist() == [0, 1]
    assert found.columns is not None
    features, labels = read_like(other, found.columns, found.classes)
    assert (features != found.test.features).nnz == 0
    assert labels.tolist() == found.test.labels.tolist() == [1, 0]


def test_a_baseline_has_the_same_places(tmp_path: Path):
    made = H1b().made_up(2_000, np.random.default_rng(0)).columns
    split = write(H1b(), H1b.label, made, 0, tmp_path / "split")
    parquet.write_table(pa.table(made), tmp_path / "a.parquet")

    config = TableConfig(label=H1b.label, categories=H1b.texts, bits=BITS)
    own = read_hashed(tmp_path / "a.parquet", config).train.features
    is_train = np.random.default_rng([0, 1]).random(2_000) < 0.7
    width = 1 << BITS
    for rows, part in zip((own[is_train], own[~is_train]), Hash().arrays(split), strict=True):
        assert (rows[:, :width] != part[:, :width]).nnz == 0
        scaled_by_all = rows[:, width:].toarray()
        assert scaled_by_all == pytest.approx(part[:, width:].toarray(), abs=0.02)


def test_several_pieces_are_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = written(tmp_path, "kind,city,price\n" + "".join(f"{'ab'[n % 2]},town {n % 7},{n}\n" for n in range(500)))
    whole = read_hashed(file, how())
    monkeypatch.setattr(csv_blocks, "PIECE_BYTES", 100)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 100)

    assert same(whole, read_hashed(file, how()))


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        (TEXT, {"label": "sort"}, "a.csv has no column 'sort'; it has kind, city, price, since"),
        (TEXT, {"label": None}, "say which column to predict (data.table.label): it has kind, city, price, since"),
        (TEXT, {"categories": ["cty"]}, "a.csv has no column 'cty'; it has kind, city, price, since. Did you mean 'city'?"),
        (TEXT, {"categories": ["since"]}, "Column 'city' of"),
        (TEXT.replace(",5,", ",a lot,"), {}, "a.csv holds 'a lot' in line 3, which is not a number, but the others are"),
        (TEXT.replace("\na,,", "\n,,"), {}, "Column 'kind' of"),
        (
            TEXT.replace("2025-12-31", "yesterday"),
            {"dates": ["since"]},
            "a.csv holds 'yesterday' in line 5, which is not a date; expected one like 2026-11-24",
        ),
        (
            TEXT.replace("2025-12-31", "yesterday"),
            {"dates": ["since"], "date_form": "%Y-%m-%d"},
            "a.csv holds '2026-03-02T08:30:00' in line 3, which is not a date; expected one like %Y-%m-%d, or an empty",
        ),
        (TEXT.replace("\nb", "\na"), {}, "a.csv: all 4 examples have 'a' in column 'kind'; expected two classes, or more"),
        (TEXT.replace(",1,", ",12 %,"), {"columns": ["price"]}, "'12 %' in line 2, which is not a number"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_with_file_and_line(tmp_path: Path, text: str | bytes, more: Any, told: str):
    with pytest.raises(DataError, match=re.escape(told)):
        read_hashed(written(tmp_path, text), how(**more))


def test_amounts_are_no_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hashed_table, "MOST", 3)

    with pytest.raises(DataError, match=r"column 'n' has 4 different labels; expected up to 3 classes, not amounts"):
        read_hashed(written(tmp_path, "n,x\n1,1\n2,1\n3,1\n4,1\n"), how(label="n"))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("{label: a, bits: 0}", "data.table.bits"),
        ("{label: a, bits: 31}", "data.table.bits"),
        ("{label: a, categories: [a]}", "'a' is the label and in categories, too"),
        ("{label: a, columns: [b], categories: [c]}", "'c' is in categories or dates, but not in columns"),
        ("{label: a, categories: [b], dates: [b]}", "'b' is in categories and in dates"),
        ("{label: a, date_form: '%Y'}", "dates names no column"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, table: str, told: str):
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(written(tmp_path, f"task: svm\ndata: {{table: {table}}}\n", "a.yaml"))


def test_a_task_that_reads_no_table_takes_no_settings_of_one(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"data\.table .* but data\(\) of the task digits has no"):
        load_task("digits", table=how())
    with pytest.raises(DataError, match=r"data\.table says how to read a table, but .*a\.txt ends in none of \.csv"):
        load_task("svm", table=how()).data(str(written(tmp_path, "1 1:1\n", "a.txt")))


def test_one_class_against_the_others(tmp_path: Path):
    file = written(tmp_path, TEXT.replace("\na,,", "\nc,,"))

    found = load_task("svm", positive="b", table=how()).data(str(file))
    assert found.classes == ("not b", "b")
    assert found.train.labels.tolist() == [1, 0, 1, 0]
    assert found.columns is not None


def test_the_sharder_writes_nothing_of_a_bad_table(tmp_path: Path):
    file = written(tmp_path, TEXT.replace(",5,", ",a lot,"))
    out = tmp_path / "shards"
    config = written(tmp_path, f"task: svm\ndata: {{path: '{file}', table: {{label: kind}}}}\n", "a.yaml")

    done = CliRunner().invoke(app, ["--config", str(config), "--out", str(out)])
    assert done.exit_code == 65
    assert not out.exists()

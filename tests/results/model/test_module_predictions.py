"""`paceline predict` with models of torch: files of every form through the task's own prepare(), classes by their names."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors import safe_open
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, DataError, UsageError
from paceline.data.csv_blocks import form_of
from paceline.results.model.predict import Report, Wanted, predict
from tests.support.trained_run import trained_run

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file
HEAD = "from paceline.extend import Dataset, Labelled\nimport numpy as np\n\n\n"
FLOWERS = """
from paceline.extend import read_table


def data(path):
    return read_table(path, label="species")


def model():
    import torch

    return torch.nn.Linear(2, 3)
"""
ROWS = [(3, 0, "rose"), (0, 3, "tulip"), (-3, -3, "aster")]
"""width, length, species."""
WEIGHTS = {"weight": torch.tensor([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]]), "bias": torch.zeros(3)}
"""aster, rose and tulip by their order."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def task(text: str) -> str:
    Path("own.py").write_text(text)
    return "./own.py"


@pytest.fixture
def flowers() -> str:
    lines = "".join(f"{width},{length},{name}\n" for width, length, name in ROWS * 10)
    Path("flowers.csv").write_text(f"width,length,species\n{lines}")
    return str(trained_run(Path("runs"), task(FLOWERS), WEIGHTS, data={"path": "flowers.csv"}).path)


def arrays(features: str, labels: str, model: str, more: str = "") -> str:
    """A task whose data are these expressions."""
    return task(
        f"{HEAD}def data(path):\n    rng = np.random.default_rng(0)\n    return Dataset(Labelled({features}, {labels}))\n\n\n"
        f"def model():\n    import torch\n\n    return {model}\n{more}"
    )


def lines_of(model: str, file: str, wanted: Wanted = Wanted()) -> list[str]:  # noqa: B008
    return list(predict(model, file, wanted, device="cpu").lines)


# tables
def test_columns_are_found_by_name_with_the_label_or_without_it(flowers: str) -> None:
    Path("a.csv").write_text("width,length,species\n5,1,rose\n1,5,rose\n")
    Path("b.tsv").write_text("note\tlength\twidth\nx\t1\t5\ny\t5\t1\n")
    parquet.write_table(pa.table({"width": [5, 1], "length": [1.0, 5.0]}), "c.parquet")

    for file in ("a.csv", "b.tsv", "c.parquet"):
        assert lines_of(flowers, file) == ["rose", "tulip"]

    report = predict("one", "a.csv")
    assert report.score["accuracy"] == 0.5
    assert report.counts == {"rose": 1, "tulip": 1}
    assert "accuracy 0.5000" in report.summary()[-1]
    assert predict("one", "b.tsv").summary()[-1] == "not scored: the file has no labels"


def test_a_file_of_a_run_is_the_model_that_predicts(flowers: str) -> None:
    Path("a.csv").write_text("width,length\n5,1\n")
    best, last = (Path(flowers) / "models" / f"{which}.safetensors" for which in ("best", "last"))
    with safe_open(best, "pt") as file:
        facts = file.metadata()
    save_file({name: -value for name, value in WEIGHTS.items()}, best, metadata=facts)

    assert lines_of(str(best), "a.csv") == list(predict(flowers, "a.csv", best=True, device="cpu").lines) == ["aster"]
    assert lines_of(str(last), "a.csv") == ["rose"]
    with pytest.raises(UsageError, match=r"last\.safetensors is one model already"):
        predict(str(last), "a.csv", best=True)


def test_a_table_of_just_the_features_has_no_label_whatever_they_are_called() -> None:
    own = arrays("rng.normal(size=(40, 2)).astype(np.float32)", "np.arange(40) % 2", "torch.nn.Linear(2, 2)")
    weights = {"weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "bias": torch.zeros(2)}
    run = str(trained_run(Path("runs"), own, weights).path)
    Path("a.csv").write_text("x,y\n5,1\n1,5\n")
    Path("b.csv").write_text("x,z,y\n5,1,0\n1,5,0\n")
    Path("c.csv").write_text("x,y,label\n5,1,0\n1,5,0\n")

    assert lines_of(run, "a.csv") == lines_of(run, "b.csv") == lines_of(run, "c.csv") == ["0", "1"]
    assert predict(run, "b.csv", device="cpu").score["accuracy"] == 0.5


def test_probabilities_are_a_csv_with_the_names_of_the_classes(flowers: str) -> None:
    Path("a.csv").write_text("width,length\n5,1\n")

    head, row = lines_of(flowers, "a.csv", Wanted(probabilities=True))

    assert head == "label,aster,rose,tulip"
    label, *numbers = row.split(",")
    assert label == "rose"
    expected = torch.tensor([-6.0, 5.0, 1.0]).softmax(0)
    assert [float(number) for number in numbers] == pytest.approx(expected.tolist())


def test_labels_that_the_model_does_not_know_are_told_and_predicted_all_the_same(flowers: str) -> None:
    Path("a.csv").write_text("width,length,species\n5,1,oak\n")

    report = predict(flowers, "a.csv")

    assert report.lines == ["rose"]
    assert report.summary()[-1] == "not scored: the labels are oak; the model's classes are aster, rose, tulip"


def test_a_column_that_lacks_is_named(flowers: str) -> None:
    Path("a.csv").write_text("width\n5\n")

    with pytest.raises(DataError, match=r"a\.csv has no column 'length'; it has width"):
        predict(flowers, "a.csv")


def test_stdin_is_a_table_and_stdout_has_nothing_but_the_predictions(flowers: str) -> None:
    said = CliRunner().invoke(app, ["predict", flowers, "-"], input="width,length,species\n5,1,rose\n1,5,tulip\n")

    assert (said.exit_code, said.stdout) == (0, "rose\ntulip\n")
    assert "accuracy 1.0000" in said.stderr


@pytest.mark.parametrize("form", ["parquet", "npy", "npz"])
def test_stdin_is_told_by_its_first_bytes(flowers: str, form: str) -> None:
    stream, rows = io.BytesIO(), np.array([[5, 1], [1, 5]], np.float32)
    if form == "parquet":
        parquet.write_table(pa.table({"width": rows[:, 0], "length": rows[:, 1]}), stream)
    elif form == "npy":
        np.save(stream, rows)
    else:
        np.savez(stream, rows)

    said = CliRunner().invoke(app, ["predict", flowers, "-"], input=stream.getvalue())

    assert (said.exit_code, said.stdout) == (0, "rose\ntulip\n")


# a model whose training data were no table
@pytest.fixture
def pairs() -> str:
    """Whole numbers as uint8, three classes."""
    own = arrays("rng.integers(0, 9, (60, 2)).astype(np.uint8)", "np.arange(60) % 3", "torch.nn.Linear(2, 3)")
    return str(trained_run(Path("runs"), own, WEIGHTS).path)


def test_columns_without_names_are_taken_in_order(pairs: str) -> None:
    Path("plain.csv").write_text("5,1\n1,5\n")
    Path("named.csv").write_text("a,b\n5,1\n1,5\n")
    Path("labelled.csv").write_text("a,label,b\n5,1,1\n1,1,5\n")
    Path("a.libsvm").write_text("1:5 2:1\n1:1 2:5\n")
    np.save("a.npy", [[5, 1], [1, 5]])
    np.savez("a.npz", x=[[5, 1], [1, 5]], y=[1, 1])

    for file in ("plain.csv", "named.csv", "labelled.csv", "a.libsvm", "a.npy", "a.npz"):
        assert lines_of(pairs, file) == ["1", "2"], file
    for file in ("labelled.csv", "a.npz"):
        assert predict(pairs, file).score["accuracy"] == 0.5


@pytest.mark.parametrize(
    "content",
    [
        b"a;b\n5;1\n1;5\n",
        b"5|1\n1|5\n",
        b"a;b\n5,0;1,0\n1,0;5,0\n",
        b"\xef\xbb\xbf5\t1\n1\t5\n",
        "gr\u00f6\u00dfe,b\n5,1\n1,5\n".encode("latin-1"),
        "a\tb\r\n5\t1\r\n1\t5\r\n".encode("utf-16"),
        b",a,b\n0,5,1\n1,1,5\n",
    ],
    ids=["semicolons", "bars", "decimal commas", "utf-8 mark", "latin-1", "utf-16", "pandas' index"],
)
def test_columns_in_order_are_read_in_whichever_form_tables_for_training_are(pairs: str, content: bytes) -> None:
    Path("a.csv").write_bytes(content)

    assert lines_of(pairs, "a.csv") == ["1", "2"]
    said = CliRunner().invoke(app, ["predict", pairs, "-"], input=content)
    assert (said.exit_code, said.stdout) == (0, "1\n2\n")


@pytest.mark.parametrize("text", ["5;1,0\n", "5;1\n1,0;5\n", "5,0;1\n", "5,0;1,0\n1,0;5,0\n", "5,0;1,0\n1;5\n"])
def test_a_table_without_a_line_of_names_may_write_fractions_with_commas(pairs: str, text: str) -> None:
    Path("a.csv").write_text(text)
    said = "a.csv: cells separated by semicolons, fractions with commas, no line of names, UTF-8"

    assert predict(pairs, "a.csv").notes == (said,)
    assert lines_of(pairs, "a.csv") == ["1", "2"][: text.count("\n")]


def test_a_first_line_that_counts_columns_from_0_is_pandas_names_for_them(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for text, named in [
        ("0,1,2\n5,1,2\n", True),
        (",0,1\n0,5,1\n", True),
        ("0,1,1\n", False),
        ("0,1\n", False),
        ("0\n", False),
    ]:
        file.write_text(text)
        assert form_of(file, needs_names=False).has_names == named, text


def test_it_is_said_that_a_first_line_of_numbers_is_an_example(pairs: str) -> None:
    Path("a.csv").write_text("5;1\n1;5\n")

    assert predict(pairs, "a.csv").notes == ("a.csv: cells separated by semicolons, no line of names, UTF-8",)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("5,1,rose\n1,5,\n", r"Column 'species' of a\.csv is empty in line 3; every example needs a label"),
        ("5,1,0.5\n1,5,0.5\n", r"column 'species' of a\.csv holds 0\.5; expected whole numbers below 2\^63 or text"),
    ],
)
def test_labels_that_can_not_be_read_are_told_and_nothing_is_held_back(flowers: str, rows: str, why: str) -> None:
    Path("a.csv").write_text(f"width,length,species\n{rows}")

    report = predict(flowers, "a.csv")

    assert report.lines == ["rose", "tulip"]
    assert re.search(f"not scored: {why}", report.summary()[-1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,c\n5,1,2\n", r"a\.csv has 3 columns, none of them called label, .*; the model was trained on 2 features"),
        ("a,b\n5,1.5\n", r"Example 0 of .*a\.csv holds 1\.5, but the model was trained on numbers of type uint8"),
        ("a,b\n5,300\n", r"Example 0 of .*a\.csv holds 300, but .* uint8"),
        ("a,b\n5,x\n", r"'b' of .*a\.csv holds 'x' in line 2, .* in training; correct it"),
        ("5,1\n5,x\n", r"Column '2' of .*a\.csv holds 'x' in line 2, which is not a number"),
        ("a,b\n5,\n", r"Column 'b' of .*a\.csv is empty in line 2; .* it knows no mean .*: fill it or remove"),
        ("a,b\n5,1\n1e999,1\n", r"Column 'a' of .*a\.csv holds inf in line 3, which is not a finite float64"),
        ("a,b\n", r"a\.csv has only column names, but no examples"),
        ("", r"a\.csv is empty\. Expected a table"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(pairs: str, text: str, words: str) -> None:
    Path("a.csv").write_text(text)

    with pytest.raises(DataError, match=words):
        predict(pairs, "a.csv")


def test_arrays_of_another_shape_are_refused(pairs: str) -> None:
    np.save("a.npy", np.zeros((4, 3)))
    with pytest.raises(DataError, match=r"a\.npy has the shape \(3,\), but the model was trained on \(2,\)"):
        predict(pairs, "a.npy")

    np.savez("b.npz", one=np.zeros((4, 2)), two=np.zeros((4, 2)))
    with pytest.raises(DataError, match=r"b\.npz holds one \(4, 2\), two \(4, 2\); expected one array of examples"):
        predict(pairs, "b.npz")


def test_a_file_that_is_not_there_is_told(pairs: str) -> None:
    for file in ("a.csv", "a.npy", "a.libsvm"):
        with pytest.raises(DataError, match=rf"Can't read {file}: No such file"):
            predict(pairs, file)


def test_a_scripts_model_is_for_the_script(tmp_path: Path) -> None:
    (tmp_path / "one/models").mkdir(parents=True)
    (tmp_path / "one/models/last.safetensors").touch()
    (tmp_path / "one/config.yaml").write_text("task: train.py\ndata: {source: script}\n")

    with pytest.raises(ConfigError, match=r"is a script's model.*Load the file where you have the code"):
        predict(str(tmp_path / "one"), "-")


def test_margins_are_for_linear_models(pairs: str) -> None:
    with pytest.raises(UsageError, match="--margins is for linear models"):
        predict(pairs, "a.csv", Wanted(margins=True))


TOWNS = """
from paceline.extend import read_table


def data(path):
    return read_table(path, label="y")


def model():
    import torch

    return torch.nn.Linear(3, 2, bias=False)
"""


def test_gaps_and_strange_texts_are_read_by_the_rules_of_training_and_told() -> None:
    rows = "".join(f"{number % 5};{('Bonn', 'Ulm')[number % 2]};{'ab'[number % 2]}\n" for number in range(40))
    Path("towns.csv").write_text(f"n;town;y\n{rows}")
    weights = {"weight": torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])}
    run = trained_run(Path("runs"), task(TOWNS), weights, data={"path": "towns.csv"}).path
    Path("a.csv").write_text("town,n\nUlm,\nRom,\n,-4\n")

    report = predict(str(run), "a.csv", Wanted(probabilities=True))

    margins = [5.0, 2.0, -4.0]  # 2 is the mean of n
    shares = [1 / (1 + np.exp(-margin)) for margin in margins]
    assert [float(line.split(",")[2]) for line in report.lines[1:]] == pytest.approx(shares)
    assert report.notes == (
        "a.csv: cells separated by commas, UTF-8",
        "a.csv: empty cells become the mean of their column in training: 2 of 'n'; empty cells are of no category: 1 of "
        "'town'; texts that the training data lack are of no category: 1 of 'town' ('Rom')",
    )


# numbers
def test_a_regression_writes_its_numbers_and_the_tasks_own_score() -> None:
    more = (
        "\n\ndef loss(model, inputs, labels):\n    return (model(inputs)[:, 0] - labels).square().mean()\n\n\n"
        "def metrics(outputs, labels):\n    return {'error': (outputs[:, 0] - labels).abs().mean()}\n"
    )
    own = arrays("rng.normal(size=(60, 2)).astype(np.float32)", "rng.normal(size=60)", "torch.nn.Linear(2, 1)", more)
    run = trained_run(Path("runs"), own, {"weight": torch.tensor([[2.0, 0.5]]), "bias": torch.tensor([1.0])})
    np.savez("a.npz", x=[[1.0, 1.0], [0.0, 0.0]], y=[3.5, 2.0])

    report = predict(str(run.path), "a.npz")

    assert report.lines == ["3.5", "1"]
    assert report.score == {"error": 0.5, "loss": 0.5}
    with pytest.raises(UsageError, match=r"--proba: the model gives 1 number\(s\) an example, not probabilities"):
        predict(str(run.path), "a.npz", Wanted(probabilities=True))


def test_one_output_for_classes_is_written_as_it_is_unless_the_task_says_what_it_means() -> None:
    loss = (
        "\n\ndef loss(model, inputs, labels):\n    return model(inputs).mean()\n\n\n"
        "def metrics(outputs, labels):\n    return {}\n"
    )
    own = arrays("rng.normal(size=(60, 2)).astype(np.float32)", "np.arange(60) % 2", "torch.nn.Linear(2, 1)", loss)
    weights = {"weight": torch.tensor([[2.0, 0.0]]), "bias": torch.tensor([0.0])}
    run = str(trained_run(Path("runs"), own, weights).path)
    np.save("a.npy", [[1.0, 1.0], [-1.0, 0.0]])
    report = predict(run, "a.npy")
    assert report.lines == ["2", "-2"]
    assert any("probabilities(outputs)" in line for line in report.summary())

    said = "\n\ndef probabilities(outputs):\n    p = outputs.sigmoid()\n    return outputs.new_tensor([[1, 0]]) "
    Path("own.py").write_text(Path("own.py").read_text() + said + "+ p * outputs.new_tensor([[-1, 1]])\n")
    run = str(trained_run(Path("others"), own, weights).path)
    assert lines_of(run, "a.npy") == ["1", "0"]
    assert lines_of(run, "a.npy", Wanted(probabilities=True))[1].startswith("1,0.119202")

    Path("own.py").write_text(
        Path("own.py").read_text() + "\n\ndef probabilities(outputs):\n    return outputs[:, 0]\n"
    )
    run = str(trained_run(Path("wrong"), own, weights).path)
    with pytest.raises(ConfigError, match=r"probabilities\(\) in .*own\.py returned Tensor .*; it must"):
        predict(run, "a.npy")


@pytest.mark.parametrize("name", ["digits", "xor"])
def test_built_in_tasks_predict_what_they_score(name: str) -> None:
    run = trained_run(Path("runs"), name)
    from paceline.data.shards import open_shards

    part: Any = open_shards(run.shards).part("test")
    np.savez("a.npz", features=part.features, labels=part.labels)

    report: Report = predict(str(run.path), "a.npz", best=True)

    expected = np.mean(np.array(report.lines, np.int64) == part.labels)
    assert report.score["accuracy"] == pytest.approx(expected)


# images, and what only the task can read
def test_images_are_scaled_to_what_the_model_was_trained_on() -> None:
    image = pytest.importorskip("PIL.Image")
    sum_up = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2, bias=False))"
    own = arrays("rng.integers(0, 255, (60, 3, 4, 4)).astype(np.uint8)", "np.arange(60) % 2", sum_up)
    weights = {"1.weight": torch.cat([torch.zeros(1, 48), torch.ones(1, 48)]) - 1e-9}
    weights["1.weight"][1] -= 100 / 255
    run = str(trained_run(Path("runs"), own, weights).path)
    for name, colour in (("a/dark.png", 9), ("b/light.png", 250)):
        Path(name).parent.mkdir()
        image.new("RGB", (20, 10), (colour,) * 3).save(name)

    assert lines_of(run, "b/light.png") == ["1"]
    assert lines_of(run, "a") == lines_of(run, "a/dark.png")
    Path("both").mkdir()
    for number in "01":
        Path(f"{'ab'[int(number)]}").rename(f"both/{number}")
    assert len(lines_of(run, "both")) == 2
    assert predict(run, "both").score.keys() == {"accuracy", "loss"}


def test_images_of_cifar_are_called_by_the_names_of_their_classes() -> None:
    Path("cifar").mkdir()
    for name in ("test_batch", *(f"data_batch_{number}" for number in range(1, 6))):
        images = np.random.default_rng(0).integers(0, 256, (20, 3073), np.uint8)
        images[:, 0] = np.arange(20) % 10
        Path(f"cifar/{name}.bin").write_bytes(images.tobytes())
    run = trained_run(Path("runs"), "cifar10", data={"path": "cifar"}, model="cnn")

    report = predict(str(run.path), "cifar", Wanted(probabilities=True))

    assert report.lines[0] == ("label,airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck")
    assert sum(report.counts.values()) == 20
    assert set(report.counts) <= set(report.lines[0].split(","))
    assert "accuracy" in report.score


def test_what_has_another_ending_goes_to_the_tasks_own_data() -> None:
    own = task(
        f"{HEAD}def data(path):\n    rows = np.fromfile(path, np.uint8).reshape(-1, 1, 2, 1)\n"
        "    return Dataset(Labelled(rows, np.arange(len(rows)) % 2), Labelled(rows[:2], np.array([1, 1])))\n\n\n"
        "def model():\n    import torch\n\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))\n"
    )
    Path("train.raw").write_bytes(bytes(range(40)))
    weights = {"1.weight": torch.eye(2), "1.bias": torch.zeros(2)}
    run = str(trained_run(Path("runs"), own, weights, data={"path": "train.raw"}).path)
    Path("new.raw").write_bytes(bytes([9, 1, 1, 9, 7, 7]))

    report = predict(run, "new.raw")

    assert report.lines == ["0", "1"]
    assert report.score["accuracy"] == 0.5

"""`paceline predict`: labels as in the file or in the model, and clear words where model and file don't fit."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer
from sklearn.metrics import precision_score, recall_score
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.cli.predict import Report, file_labels, find_model, predict
from paceline.core.errors import DataError, DiskError, UsageError
from paceline.data.linear_model import Labels, save_liblinear, save_safetensors

FILE = "+1 1:2\n-1 2:1 3:4\n+1 1:-1\n-1 3:1\n"
"""Margins 2, -1, -1 and 0 with the weights (1, -1, 0)."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model(name: str = "a.model", labels: Labels = Labels()) -> str:  # noqa: B008
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    save_liblinear(Path(name), np.array([1, -1, 0], np.float32), labels, "hinge")
    return name


def file(text: str = FILE) -> str:
    Path("a.libsvm").write_text(text)
    return "a.libsvm"


def predicted(model: str, file: str, with_margins: bool = False) -> tuple[Report, list[str]]:
    report = predict(model, file, Path("out"), with_margins)
    return report, Path("out").read_text().splitlines()


def test_each_example_gets_a_line_and_the_file_a_score() -> None:
    report, lines = predicted(model(), file())

    assert lines == ["1", "-1", "-1", "-1"]
    assert report.hits == pytest.approx((0.75, 1.0, 0.5, 2 / 3, 0.5))
    assert report.lines() == [
        "model a.model: 3 features",
        "4 examples: 3 as -1, 1 as 1",
        "accuracy 0.7500, precision 1.0000, recall 0.5000, f1 0.6667, majority 0.5000 (of label 1 against -1)",
    ]


def test_margins_stand_behind_the_labels() -> None:
    assert predicted(model(), file(), with_margins=True)[1] == ["1 2", "-1 -1", "-1 -1", "-1 0"]


def test_both_forms_say_the_same_as_the_library_that_trained_the_model() -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    svc = LinearSVC(fit_intercept=False, loss="hinge", random_state=0).fit(features / features.max(0), labels)
    weights, rows = svc.coef_[0].astype(np.float32), features / features.max(0)
    save_safetensors(Path("a.safetensors"), weights, Labels(0, 1), {})
    save_liblinear(Path("a.liblinear"), weights, Labels(0, 1), "hinge")
    dump_svmlight_file(rows, labels, "a.libsvm", zero_based=False)

    expected = svc.predict(rows)
    for name in ("a.safetensors", "a.liblinear"):
        report, lines = predicted(name, "a.libsvm")
        assert [int(line) for line in lines] == expected.tolist()
        assert report.hits is not None
        assert report.hits.accuracy == pytest.approx(svc.score(rows, labels))
        assert report.hits.precision == pytest.approx(precision_score(labels, expected))
        assert report.hits.recall == pytest.approx(recall_score(labels, expected))


@pytest.mark.parametrize(
    ("own", "of_model", "found"),
    [
        ([-1, 1], Labels(), Labels(-1, 1)),
        ([0, 1], Labels(), Labels(0, 1)),
        ([1, 2], Labels(), Labels(1, 2)),
        ([-1, 1], Labels(3, 7), Labels(-1, 1)),
        ([3, 7], Labels(7, 3), Labels(7, 3)),
        ([0, 1], Labels(7, 3), Labels(1, 0)),
        ([1, 2], Labels(3, 7), "the file's labels are 1, 2; expected both 3 and 7, as in the model"),
        ([1], Labels(), "the file's labels are 1; expected both -1 and 1, as in the model"),
        (range(9), Labels(None, 3), Labels(None, 3)),
        ([1, 2], Labels(None, 1), Labels(None, 1)),
        ([0, 2], Labels(None, 1), "the file's labels are 0, 2; expected 1 and others, as in the model's data"),
        (range(9), Labels(), "the file's labels are 0, 1, 2, 3, 4, ...; expected both -1 and 1, as in the model"),
    ],
)
def test_two_labels_are_the_models_classes_or_there_is_no_score(
    own: list[int], of_model: Labels, found: Labels | str
) -> None:
    assert file_labels(np.array([*own, *own], np.float32), of_model) == found


def test_labels_that_are_none_of_the_models_leave_the_predictions() -> None:
    report, lines = predicted(model(), file(FILE.replace("+1", "0.5").replace("-1 3", "7 3")))

    assert lines == ["1", "-1", "-1", "-1"]
    assert report.hits is None
    assert report.lines()[-1] == "not scored: the file's labels are -1, 0.5, 7; expected both -1 and 1, as in the model"


def test_a_model_of_one_class_against_all_others_scores_a_file_of_many() -> None:
    save_safetensors(Path("a.model"), np.array([1, -1, 0], np.float32), Labels.against_others("1"), {})

    report, lines = predicted("a.model", file(FILE.replace("-1 2", "2 2").replace("-1 3", "5 3")))

    assert lines == ["1", "-1", "-1", "-1"]
    assert report.hits == pytest.approx((0.75, 1.0, 0.5, 2 / 3, 0.5))
    assert report.lines()[-1].endswith("(of label 1 against all others)")


def test_an_index_beyond_the_models_features_names_the_line_and_the_model() -> None:
    with pytest.raises(DataError, match=r"line 3 .*an index is 4, but there are 3 features.* model a\.model has 3"):
        predict(model(), file(FILE.replace("1:-1", "4:-1")), None, False)


def test_a_run_gives_its_final_model() -> None:
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/config.yaml").write_text("task: digits\n")
    with pytest.raises(DataError, match=r"no runs/mine/models/last\.safetensors: run 'mine' was not scored"):
        find_model("mine")

    last = model("runs/mine/models/last.safetensors")

    assert find_model("mine") == Path(last)


def test_a_folder_gives_its_last_model() -> None:
    last = model("model/last.safetensors")

    assert find_model("model") == Path(last)


def test_a_model_that_is_nowhere_is_told() -> None:
    with pytest.raises(
        UsageError,
        match=r"There is no model b\.model: neither a file, nor a folder with last\.s.* There is no run 'b\.model'",
    ):
        find_model("b.model")


def test_margins_need_a_file_to_go_to() -> None:
    with pytest.raises(UsageError, match="--out"):
        predict(model(), file(), None, True)


def test_predictions_that_can_not_be_written_are_told() -> None:
    with pytest.raises(DiskError, match="Can't write the predictions to no/out"):
        predict(model(), file(), Path("no/out"), False)


def test_the_command_prints_text_or_json() -> None:
    said = CliRunner().invoke(app, ["predict", model(), file(), "--out", "out", "--margins"])
    assert (said.exit_code, said.stdout.splitlines()[1]) == (0, "4 examples: 3 as -1, 1 as 1")
    assert Path("out").read_text().splitlines()[0] == "1 2"

    said = CliRunner().invoke(app, ["predict", model(), file(), "--json"])
    assert json.loads(said.stdout) == {
        "model": "a.model", "features": 3, "counts": {"-1": 3, "1": 1}, "accuracy": 0.75, "precision": 1.0, "recall": 0.5,
        "f1": pytest.approx(2 / 3), "majority": 0.5,
    }  # fmt: skip


def test_a_mistake_is_a_sentence_and_an_exit_code() -> None:
    Path("bad.model").write_text("solver_type L2R_LR\nnr_class 3\n")

    said = CliRunner().invoke(app, ["predict", "bad.model", file()])

    assert said.exit_code == 65
    assert "paceline: DataError: Can't read bad.model" in said.stderr

"""`paceline predict`: labels as in the file or in the model, and clear words where model and file don't fit."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer
from sklearn.metrics import precision_score, recall_score
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import DataError, DiskError, UsageError
from paceline.data.examples_to_predict import _numbered, fitted
from paceline.data.inputs import Inputs
from paceline.data.linear_model import LOSS, Labels, Parts, save_liblinear, save_safetensors
from paceline.results.model.linear_predictions import file_labels
from paceline.results.model.predict import Report, Wanted, find_model, predict, write

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


def predicted(model: str, file: str, wanted: Wanted = Wanted()) -> tuple[Report, list[str]]:  # noqa: B008
    report = predict(model, file, wanted)
    return report, list(report.lines)


def test_each_example_gets_a_line_and_the_file_a_score() -> None:
    report, lines = predicted(model(), file())

    assert lines == ["1", "-1", "-1", "-1"]
    assert list(report.score.values()) == pytest.approx([0.75, 1.0, 0.5, 2 / 3, 0.5])
    assert report.summary() == [
        "model a.model: 3 features",
        "4 examples: 3 as -1, 1 as 1",
        "accuracy 0.7500, precision 1.0000, recall 0.5000, f1 0.6667, majority 0.5000 (of label 1 against -1)",
    ]


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
        assert report.score["accuracy"] == pytest.approx(svc.score(rows, labels))
        assert report.score["precision"] == pytest.approx(precision_score(labels, expected))
        assert report.score["recall"] == pytest.approx(recall_score(labels, expected))


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
def test_two_labels_are_the_models_classes_or_not_scored(own: list[int], of_model: Labels, found: Labels | str) -> None:
    assert file_labels(np.array([*own, *own], np.float32), of_model) == found


def test_labels_that_are_none_of_the_models_leave_the_predictions() -> None:
    report, lines = predicted(model(), file(FILE.replace("+1", "0.5").replace("-1 3", "7 3")))

    assert lines == ["1", "-1", "-1", "-1"]
    assert not report.score
    assert (
        report.summary()[-1] == "not scored: the file's labels are -1, 0.5, 7; expected both -1 and 1, as in the model"
    )


def test_a_model_of_one_class_against_all_others_scores_a_file_of_many() -> None:
    save_safetensors(Path("a.model"), np.array([1, -1, 0], np.float32), Labels.of("1"), {})

    report, lines = predicted("a.model", file(FILE.replace("-1 2", "2 2").replace("-1 3", "5 3")))

    assert lines == ["1", "-1", "-1", "-1"]
    assert list(report.score.values()) == pytest.approx([0.75, 1.0, 0.5, 2 / 3, 0.5])
    assert report.summary()[-1].endswith("(of label 1 against all others)")


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_what_is_no_finite_number_is_refused(wrong: float) -> None:
    inputs = SimpleNamespace(sparse=True, shape=(3,), size=3)

    with pytest.raises(DataError, match="example 1 hold NaN or infinity"):
        fitted(np.array([[1.0, 2.0, 3.0], [1.0, wrong, 3.0]]), inputs, "a.npy")


def test_names_of_all_other_classes_are_scored_as_the_one_that_they_were() -> None:
    inputs = SimpleNamespace(has_classes=True, classes=("not DENIED", "DENIED"), label_dtype="int64")

    assert _numbered(np.array(["CERTIFIED", "DENIED", "WITHDRAWN"]), inputs).tolist() == [0, 1, 0]


def test_a_bad_line_is_named_as_it_stands_there_and_with_the_model_that_an_index_is_beyond() -> None:
    with pytest.raises(DataError, match=r"line 3 .*an index is 4, but there are 3 features.* model a\.model has 3"):
        predict(model(), file(FILE.replace("1:-1", "4:-1")))
    with pytest.raises(DataError, match=r"line 2 \('1:x'\)"):
        predict(model(), file("1:2\n1:x\n"))


def test_a_run_or_a_folder_gives_its_last_model() -> None:
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/config.yaml").write_text("task: digits\n")
    with pytest.raises(DataError, match=r"no runs/mine/models/last\.safetensors, because run 'mine' was not scored"):
        find_model("mine")

    last = model("runs/mine/models/last.safetensors")

    assert find_model("mine")[0] == Path(last)
    in_folder = model("model/last.safetensors")
    assert find_model("model") == (Path(in_folder), None)
    with pytest.raises(UsageError, match=r"There is no model b.model: .* last.s.* There is no run 'b.model'"):
        find_model("b.model")


def test_the_command_writes_predictions_to_stdout_and_what_is_known_of_them_to_stderr() -> None:
    said = CliRunner().invoke(app, ["predict", model(), file(), "--margins"])
    assert (said.exit_code, said.stdout.splitlines()) == (0, ["1 2", "-1 -1", "-1 -1", "-1 0"])
    assert said.stderr.splitlines()[1] == "4 examples: 3 as -1, 1 as 1"

    said = CliRunner().invoke(app, ["predict", model(), file(), "--out", "out"])
    assert (said.exit_code, said.stdout) == (0, "")
    assert Path("out").read_text() == "1\n-1\n-1\n-1\n"
    with pytest.raises(DiskError, match="Can't write the predictions to no/out"):
        write(["1"], Path("no/out"))

    said = CliRunner().invoke(app, ["predict", model(), file(), "--json"])
    assert json.loads(said.stdout) == {
        "model": "a.model",
        "features": 3,
        "examples": 4,
        "counts": {"-1": 3, "1": 1},
        "accuracy": 0.75,
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
        "majority": 0.5,
    }


def test_a_file_without_labels_gives_the_same_predictions_and_no_score() -> None:
    report, lines = predicted(model(), file("# a comment\n1:2\n2:1 3:4 # another\n\n1:-1\n3:1\n"))

    assert lines == ["1", "-1", "-1", "-1"]
    assert report.summary()[-1] == "not scored: the file has no labels"


def test_stdin_is_a_minus() -> None:
    for text in (FILE, "1:2\n2:1 3:4\n1:-1\n3:1\n"):
        said = CliRunner().invoke(app, ["predict", model(), "-"], input=text)
        assert (said.exit_code, said.stdout) == (0, "1\n-1\n-1\n-1\n")


def test_probabilities_are_those_of_a_logistic_model() -> None:
    save_liblinear(Path("l.model"), np.array([1, -1, 0], np.float32), Labels(), "logistic")

    _, lines = predicted("l.model", file(), Wanted(probabilities=True))

    assert lines[0] == "label,-1,1"
    label, negative, positive = lines[1].split(",")
    assert (label, float(negative), float(positive)) == ("1", pytest.approx(0.11920292), pytest.approx(0.88079708))


def test_a_hinge_loss_gives_no_probabilities() -> None:
    with pytest.raises(UsageError, match=r"a\.model was trained with the loss hinge, .* svm\.objective\.loss=logistic"):
        predict(model(), file(), Wanted(probabilities=True))


SEVERAL = np.array([[1, 0], [0, 1], [-1, -1]], np.float32)
MANY = "4 1:3\n5 2:3\n7 1:-1 2:-1\n4 2:1\n"


def of_several(loss: str = "hinge") -> str:
    save_liblinear(Path("s.model"), Parts(SEVERAL, np.zeros(3, np.float32)), Labels(), loss, ("4", "5", "7"))
    return "s.model"


def test_a_model_of_several_classes_says_the_one_whose_margin_is_largest() -> None:
    report, lines = predicted(of_several(), file(MANY), Wanted(margins=True))

    assert lines == ["4 3 0 -3", "5 0 3 -3", "7 -1 -1 2", "5 0 1 -1"]
    assert report.score["accuracy"] == 0.75
    report, lines = predicted("s.model", file(MANY.replace("7 1", "9 1")))
    assert lines == ["4", "5", "7", "5"]
    assert report.summary()[-1] == "not scored: the file's labels are 9; the model's classes are 4, 5, 7"


def test_probabilities_of_several_classes_sum_up_to_one() -> None:
    _, lines = predicted(of_several("logistic"), file(MANY), Wanted(probabilities=True))

    assert lines[0] == "label,4,5,7"
    label, *numbers = lines[1].split(",")
    each = 1 / (1 + np.exp([-3.0, 0.0, 3.0]))
    assert label == "4"
    assert [float(number) for number in numbers] == pytest.approx((each / each.sum()).tolist())
    with pytest.raises(UsageError, match="give only one of them"):
        predict("s.model", file(MANY), Wanted(True, True))


def test_probabilities_of_a_softmax_model_are_its_own() -> None:
    facts = {LOSS: "softmax"}
    save_safetensors(Path("s.safetensors"), Parts(SEVERAL, np.zeros(3, np.float32)), Labels(), facts)

    _, lines = predicted("s.safetensors", file(MANY), Wanted(probabilities=True))

    each = np.exp([3.0, 0.0, -3.0])
    assert [float(number) for number in lines[1].split(",")[1:]] == pytest.approx((each / each.sum()).tolist())


def test_liblinears_text_of_a_softmax_model_has_its_classes_but_no_probabilities() -> None:
    report, lines = predicted(of_several("softmax"), file(MANY))

    assert lines == ["4", "5", "7", "5"]
    assert report.score["accuracy"] == 0.75
    with pytest.raises(UsageError, match="trained with the loss that its file does not name"):
        predict("s.model", file(MANY), Wanted(probabilities=True))


DOCUMENTS = "2286  1:2\n2287  2:1 3:4\n2290  1:-1\n"


def rcv1(folder: str) -> str:
    Path(folder).mkdir()
    path = Path(folder) / "lyrl2004_vectors_test_pt0.dat"
    path.write_text(DOCUMENTS)
    facts = Inputs(shape=(3,), dtype="<f4", sparse=True, label_dtype="<i8", classes=("not ECAT", "ECAT")).facts
    save_safetensors(Path("r.safetensors"), np.array([1, -1, 0], np.float32), Labels(), facts)
    return str(path)


def test_rcv1_as_published_has_documents_and_no_labels_and_a_topic_by_name() -> None:
    report, lines = predicted("r.safetensors", rcv1("alone"))

    assert lines == ["ECAT", "not ECAT", "not ECAT"]
    assert report.summary()[1:] == ["3 examples: 2 as not ECAT, 1 as ECAT", "not scored: the file has no labels"]


def test_rcv1_beside_its_topics_is_scored_by_the_models_own_topic() -> None:
    file = rcv1("with")
    (Path("with") / "rcv1-v2.topics.qrels").write_text("ECAT 2286 1\nCCAT 2287 1\nECAT 2290 1\n")

    report, _ = predicted("r.safetensors", file)

    assert report.score["accuracy"] == pytest.approx(2 / 3)


def test_a_mistake_is_a_sentence_and_an_exit_code() -> None:
    Path("bad.model").write_text("solver_type L2R_LR\nnr_class 3\n")

    said = CliRunner().invoke(app, ["predict", "bad.model", file()])

    assert said.exit_code == 65
    assert "paceline: DataError: Can't read bad.model" in said.stderr

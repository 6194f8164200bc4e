"""Files of linear models: what is written is read back, other tools read it too, and what is damaged is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from paceline.core.errors import DataError, DiskError
from paceline.data.inputs import Inputs
from paceline.data.linear_model import (
    Labels,
    LinearClassifier,
    Parts,
    read_linear_model,
    save_liblinear,
    save_safetensors,
)

WEIGHTS = np.array([0.1, 0, -2.5e-7, 1 / 3, -0.0, 16777217], np.float32)
HEADER = "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n"
OF_THREE = HEADER.replace("class 2", "class 3").replace("1 -1", "1 2 3")


def as_safetensors(path: Path) -> None:
    save_safetensors(path, WEIGHTS, Labels(), {"epoch": "3"})


def as_liblinear(path: Path) -> None:
    save_liblinear(path, WEIGHTS, Labels(), "hinge")


def text(folder: Path, content: str) -> Path:
    (folder / "a.model").write_text(content)
    return folder / "a.model"


@pytest.mark.parametrize("save", [as_safetensors, as_liblinear])
def test_a_model_is_read_back_bit_by_bit(save: Callable[[Path], None], tmp_path: Path) -> None:
    save(tmp_path / "a")

    found = read_linear_model(tmp_path / "a")

    np.testing.assert_array_equal(found.weights, WEIGHTS)
    assert (found.weights.dtype, found.labels, found.offset) == (np.float32, Labels(-1, 1), 0)
    assert os.listdir(tmp_path) == ["a"]


def test_the_safetensors_are_one_tensor_with_the_labels_beside_it(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "a", WEIGHTS, Labels(3, 7), {"epoch": "3"})

    assert list(load_file(tmp_path / "a")) == ["weights"]
    assert read_linear_model(tmp_path / "a").labels == Labels(negative=3, positive=7)


@pytest.mark.parametrize(
    ("positive", "labels", "names"),
    [
        (None, Labels(-1, 1), (-1, 1)),
        ("3", Labels(None, 3), (-1, 3)),
        ("-1", Labels(None, -1), (1, -1)),
        ("CCAT", Labels(-1, 1), (-1, 1)),
    ],
)
def test_one_class_against_all_others_keeps_its_label(
    positive: str | None, labels: Labels, names: tuple[int, int], tmp_path: Path
) -> None:
    save_safetensors(tmp_path / "a", WEIGHTS, Labels.of(positive), {})
    save_liblinear(tmp_path / "b", WEIGHTS, Labels.of(positive), "hinge")

    assert read_linear_model(tmp_path / "a").labels == labels
    assert labels.names == names
    assert read_linear_model(tmp_path / "b").labels == Labels(*names)


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("1", "2"), (1, 2)),
        (("0", "1"), (0, 1)),
        (("-1", "1"), (-1, 1)),
        (("a", "b"), (-1, 1)),
        (("1", "2", "3"), (-1, 1)),
    ],
)
def test_two_classes_are_called_as_in_the_data_where_they_are_numbers(names: tuple[str, ...], labels: object) -> None:
    assert tuple(Labels.of(None, names)) == labels


@pytest.mark.parametrize(("loss", "solver"), [("hinge", "L2R_L1LOSS_SVC_DUAL"), ("logistic", "L2R_LR")])
def test_liblinears_text_has_its_header_and_a_weight_in_each_line(loss: str, solver: str, tmp_path: Path) -> None:
    save_liblinear(tmp_path / "a", np.array([0.5, 0, -2], np.float32), Labels(), loss)

    header = f"solver_type {solver}\nnr_class 2\nlabel 1 -1\nnr_feature 3\nbias -1\nw\n"
    assert (tmp_path / "a").read_text() == f"{header}0.5\n0\n-2\n"


def test_liblinear_itself_predicts_the_same_signs(tmp_path: Path) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    weights = np.array([0.5, -2, 0], np.float32)
    save_liblinear(tmp_path / "a", weights, Labels(), "hinge")

    rows = [{1: 1.0}, {1: 1.0, 2: 1.0}, {2: -1.0, 3: 5.0}, {3: 1.0}]
    labels, _, margins = liblinear.predict([], rows, liblinear.load_model(str(tmp_path / "a")), "-q")

    assert labels == [1, -1, 1, -1]
    assert margins == [[0.5], [-1.5], [2], [0]]


def test_a_model_of_liblinear_with_a_bias_and_other_labels_is_read(tmp_path: Path) -> None:
    content = HEADER.replace("1 -1", "0 4").replace("bias -1", "bias 2") + "0.25 \n-1e-3 \n0.75 \n"

    found = read_linear_model(text(tmp_path, content))

    assert found.weights.tolist() == [0.25, np.float32(-1e-3)]
    assert found[1:] == LinearClassifier(WEIGHTS, Labels(negative=4, positive=0), 1.5)[1:]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER.replace("class 2", "class 3"), "it has 3 classes and 2 labels; expected two or more"),
        (OF_THREE + "1 2 3\n1 2\n", r"line 8 \('1 2'\): expected 3 numbers"),
        (OF_THREE + "1 2 3\n", "it has 1x3 weights; its header says 2, 3 in"),
        (HEADER.replace("label 1 -1\n", "").replace("C_DUAL", "R"), "a model for L2R_L2LOSS_SVR, which has no classes"),
        (HEADER.replace("L2R_L2LOSS_SVC_DUAL", "MCSVM_CS"), "a model for MCSVM_CS, with weights for each class"),
        (HEADER + "1\n", "it has 1 weights; its header says 2, one in each line"),
        (HEADER + "1\n2\n3\n", "it has 3 weights; its header says 2"),
        (HEADER + "1 2\n3 4\n", "it has 2x2 weights; its header says 2"),
        (HEADER, "it has 0 weights; its header says 2"),
        (HEADER + "1\nx\n", r"line 8 \('x'\): expected a number"),
        (HEADER + "1\n2 3\n", r"line 8 \('2 3'\): expected a number"),
        (HEADER + "1\nnan\n", "NaN or infinite"),
        (HEADER.replace("1 -1", "1 1") + "1\n2\n", "both of its classes are called 1"),
        (HEADER.replace("nr_feature 2\n", ""), "header is not whole: nr_feature is missing"),
        ("solver_type L2R_LR\n", "header is not whole"),
        (HEADER.removesuffix("w\n"), "header is not whole: w is missing"),
        (HEADER.replace("feature 2", "feature 0"), "it has no weights"),
        ("+1 3:0.5\n", "neither LIBLINEAR's text nor whole safetensors"),
        ("", "neither LIBLINEAR's text nor whole safetensors"),
    ],
)
def test_text_that_is_no_whole_model_is_refused(content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"Can't read .*a\.model: .*{words}.* Expected safetensors"):
        read_linear_model(text(tmp_path, content))


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"0.weight": np.ones((2, 2), np.float32)}, "it is no linear model: its tensors are 0.weight"),
        ({"weights": np.ones((1, 3), np.float32)}, r"its weights are float32 of shape \(1, 3\)"),
        ({"weights": np.ones(3, np.int32)}, "its weights are int32"),
        ({"weights": np.array([1, np.inf], np.float32)}, "NaN or infinite"),
    ],
)
def test_safetensors_of_something_else_are_refused(tensors: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "a")

    with pytest.raises(DataError, match=words):
        read_linear_model(tmp_path / "a")


def test_cut_off_safetensors_are_refused(tmp_path: Path) -> None:
    as_safetensors(tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])

    with pytest.raises(DataError, match="nor whole safetensors"):
        read_linear_model(tmp_path / "a")


@pytest.mark.parametrize("save", [as_safetensors, as_liblinear])
def test_a_full_disk_is_told_and_the_old_model_kept(
    save: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"Can't write the model to .*No space left on device"):
        save(tmp_path / "a")

    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("form", ["safetensors", "liblinear"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_intercepts_and_several_classes_are_read_back(form: str, intercept: bool, classes: int, tmp_path: Path) -> None:
    flat = np.random.default_rng(0).normal(size=(4 + intercept) * (1 if classes == 2 else classes)).astype(np.float32)
    model, names, path = Parts.of(flat, classes, intercept), ("1", "2", "7")[:classes], tmp_path / "a"
    inputs = Inputs(shape=(4,), dtype="<f4", sparse=True, label_dtype="<i8", classes=names)
    if form == "liblinear":
        save_liblinear(path, model, Labels(1, 2), "squared_hinge", names)
    else:
        save_safetensors(path, model, Labels(1, 2), inputs.facts)

    found = read_linear_model(path)

    each = flat.reshape(1 if classes == 2 else classes, -1)
    np.testing.assert_array_equal(np.atleast_2d(found.weights), each[:, :4])
    ends = each[:, 4] if intercept else np.zeros(len(each))
    offsets = np.float32([found.offset]) if found.offsets is None else found.offsets
    np.testing.assert_array_equal(offsets, ends)
    if classes == 3:
        assert found.names == names
    else:
        assert found.labels == Labels(1, 2)


def test_liblinear_itself_predicts_the_same_classes(tmp_path: Path) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    flat = np.array([1, 0, 0, 0, 1, 0, -1, -1, 0.5], np.float32)
    save_liblinear(tmp_path / "a", Parts.of(flat, 3, True), Labels(), "squared_hinge", ("4", "6", "9"))

    rows = [{1: 1.0}, {2: 1.0}, {1: -1.0, 2: -1.0}]
    labels, _, _ = liblinear.predict([], rows, liblinear.load_model(str(tmp_path / "a")), "-q")

    assert labels == [4, 6, 9]

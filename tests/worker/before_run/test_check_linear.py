"""A linear model's data and settings before a run: each mistake is reported with what was seen and what to do."""

from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ConfigError, DataError, PacelineError
from paceline.core.settings.config import Config
from paceline.data.shards import open_shards
from paceline.launch.linear_without_servers import train_here
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_config
from paceline.worker.before_run.check_linear import check_linear

TASK = """
import numpy as np
import scipy.sparse as sp
from paceline.extend import Dataset, Labelled

SETTINGS = {{
    "updates": "sparse",
    "data": {{"validation": 0.0}},
    "policy": {{"name": "asp"}},
    "optimizer": {{"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0}},
    "svm": {{"objective": {{"loss": "squared_hinge", "c": 1.0}}, "steps": "fitted"}},
}}

def data(path):
    rng = np.random.default_rng(0)
    x = sp.random_array((200, 30), density=0.2, rng=rng, format="csr", dtype=np.float32)
    y, names = np.arange(200) % 2, None
    w = None
    {code}
    return Dataset(train=Labelled(x[:160], y[:160], w), test=Labelled(x[160:], y[160:]), classes=names)
"""


def config_of(folder: Path, code: str = "", **settings: Any) -> Config:
    (folder / "mine.py").write_text(TASK.format(code=code))
    return load_config(None, {"task": str(folder / "mine.py"), "workers": 2, "servers": 1, **settings})


def checked(config: Config, folder: Path) -> None:
    make_shards(config, folder / "shards", fresh=True)
    check_linear(config, open_shards(folder / "shards"))


def test_what_can_be_trained_passes(tmp_path: Path) -> None:
    plain = {"svm": {"steps": "plain", "objective": {"loss": "hinge", "c": None}}, "policy": {"name": "bsp"}}
    for code, settings in [
        ("", {}),
        ("", plain),
        ("", {"codec": {"push": "fp16"}}),
        ("y = np.arange(200) % 3", {}),
        ("y = np.arange(200) % 3; names = ('a', 'b', 'c')", {"svm": {"class_weights": {"b": 3.0}}}),
        ("y = np.where(np.arange(200) == 170, 2, np.array([0, 1, 3])[np.arange(200) % 3])", {}),
        ("y[170] = 2; names = ('a', 'b', 'rare')", {}),
        ("y = np.where(np.arange(200) == 170, 3, np.arange(200) % 3); names = ('a', 'b', 'c', 'rare')", {}),
        ("y = 2 * y; names = ('a', 'none at all', 'c')", {}),
    ]:
        checked(config_of(tmp_path, code, **settings), tmp_path)


BAD = [
    ("y = 2 * y - 1", DataError, r"labels of task .* go from -1 to 1; .*classes from 0.*to 0 and 1: \(labels > 0\)"),
    ("y = y + 10_000", DataError, r"go from 10000 to 10001; .*at most 1,000 of them\. Number them from 0 in data\(\)"),
    ("y = y + 1", DataError, r"go from 1 to 2; .*If they count from 1, subtract 1 in data\(\)"),
    ("y = y.astype('float32')", DataError, r"labels of task .* are float32 of shape \(80,\); .* whole number"),
    ("y = y > 0", DataError, r"labels of task .* are bool of shape \(80,\)"),
    ("y = y[:, None]", DataError, r"are int64 of shape \(80, 1\)"),
    ("y[:] = 1", DataError, "All 160 training examples of task .* have the label 1; expected two classes"),
    ("y[:160] = 0; names = ('no', 'yes')", DataError, "All 160 training examples .* have the label no;"),
    ("y[160:] += 1", DataError, r"have the label 2 \(20 of 40 examples\), which no training .* have 0 and 1"),
    ("y[160:] += 1; names = ('-1', '0', '1')", DataError, r"test examples .* have the label 1 \(20 of 40 .* -1 and 0"),
    ("y = np.arange(200) % 3; y[:160] += 1; names = tuple('abcd')", DataError, r"label a \(1. of 40 .* b to d"),
    ("y = 2 * y + 2", DataError, r"are 2 and 4; .*without a gap, .*make them 0 and 1: \(labels == 4\)\.astype"),
    ("y = np.where(np.arange(200) == 170, 5, np.arange(200) % 3)", DataError, r"label 5 \(1 of 40 .* have 0 to 2"),
    ("x = sp.csr_array((200, 30), dtype=np.float32)", DataError, "No training example of task .* has a feature"),
    ("x = x.toarray()", ConfigError, "hold dense rows, but updates: sparse"),
    ("x.data[:] *= 1e30", ConfigError, "Training has diverged"),
]


@pytest.mark.parametrize(("code", "kind", "sentence"), BAD, ids=[row[0] for row in BAD])
def test_bad_data_is_told(tmp_path: Path, code: str, kind: type[PacelineError], sentence: str) -> None:
    steps = {"svm": {"steps": "plain"}} if "1e30" in code else {}

    with pytest.raises(kind, match=sentence):
        checked(config_of(tmp_path, code, **steps), tmp_path)


SETTINGS = [
    ({"svm": {"class_weights": {"5": 2.0}}}, "a weight for the class '5', but the data has only 0, 1"),
    ({"batch_size": 500}, "batch_size is 500, .* no worker has more than 80"),
    ({"optimizer": {"lr": 1e38}, "svm": {"steps": "plain"}}, r"Training has diverged: .*Lower optimizer\.lr"),
    (
        {"optimizer": {"lr": 1e6}, "svm": {"steps": "plain"}, "codec": {"push": "fp16"}},
        r"codec.push is fp16, and a first push has values \(up to .*Set codec.push to bf16 or none, or lower optimizer.lr",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), SETTINGS, ids=[str(row[0]) for row in SETTINGS])
def test_a_setting_that_does_not_fit_the_data_is_told(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        checked(config_of(tmp_path, **settings), tmp_path)


def test_training_here_refuses_the_same_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="If they count from 1, subtract"):
        train_here(config_of(tmp_path, "y = y + 1"), 1, False, tmp_path / "model")


def test_test_labels_in_another_writing_than_the_training_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{'+1' if row % 2 else '-1'} {row % 5 + 1}:1\n" for row in range(100)))
    (tmp_path / "a.t").write_text("0 1:1\n1 2:1\n")
    config = load_config(None, {"task": "svm", "data": {"path": str(tmp_path / "a")}, "workers": 2})

    with pytest.raises(DataError, match=r"test examples of task 'svm' have the label 0 \(1 of 2.* these have -1 and 1"):
        checked(config, tmp_path)


def test_rows_of_which_none_counts_are_told_before_training(tmp_path: Path) -> None:
    third = "w = np.zeros(160); w[2] = 1"
    kept = {"svm": {"stopping": {"rule": "window"}, "validation": 0.2}}
    checked(config_of(tmp_path, third, workers=1), tmp_path)

    with pytest.raises(DataError, match=r"All 80 training examples of one worker have weight 0, .*take fewer workers"):
        checked(config_of(tmp_path, third), tmp_path)
    with pytest.raises(DataError, match=r"All \d+ examples that one worker keeps for validation have weight 0, "):
        checked(config_of(tmp_path, third, workers=1, **kept), tmp_path)

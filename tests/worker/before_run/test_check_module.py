"""One mini-batch before a run: each mistake in a task is reported with its place, its sizes and what to do."""

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.shards import Shards, open_shards
from paceline.settings.load_settings import load
from paceline.sharder.sharding import make_shards
from paceline.worker.before_run.check_module import check, telling

TASK = """
def data(path):
    import numpy as np
    from paceline.extend import Dataset, Labelled
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 4
    return Dataset(train=Labelled(rng.normal(size=(120, 6)).astype(np.float32), np.sort(labels)))

def model():
    from torch import nn
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
    )
"""
PREPARE = """
def prepare(features, labels, rng):
    import torch
    return torch.from_numpy(features.copy()), torch.from_numpy({labels})
"""
LOSS = """
def loss(model, inputs, labels):
    import torch
    from torch.nn import functional
    return {loss}
"""
METRICS = """
def metrics(outputs, labels):
    return {metrics}
"""
CROSS = "functional.cross_entropy(model(inputs), labels)"
ONE = """
def model():
    from torch import nn
    return nn.Linear(6, 1)
"""
HUBER = "functional.huber_loss(model(inputs)[:, 0], labels)"
BINARY = "functional.binary_cross_entropy_with_logits(model(inputs)[:, 0], labels)"
FLOATS = PREPARE.format(labels="labels.astype('float32')")
LOOSE = LOSS.format(loss="functional.mse_loss(model(inputs)[:, :1], labels)")
RIGHT = METRICS.format(metrics="{'right': float(outputs.argmax(2).sum())}")
BAD = [
    ("counted from 1", PREPARE.format(labels="labels + 1"), "from 1 to 4.*4 outputs, for labels 0 to 3.*subtract 1"),
    (
        "beyond",
        PREPARE.format(labels="labels * 2"),
        r"from 0 to 6, but .* 4 outputs.*model\(\) 7 outputs.*astype\('float32'",
    ),
    (
        "no loss, 0 and 1",
        ONE + PREPARE.format(labels="(labels > 1).astype('float32')"),
        "are 0 and 1 as torch.float32, so the loss may be one of two.* binary cross entropy",
    ),
    ("no loss, whole numbers", ONE, r"from 0 to 3, but .* 1 outputs.* numbers to predict .*astype.*write loss\(\)"),
    (
        "whole numbers",
        ONE + PREPARE.format(labels="labels") + LOSS.format(loss=HUBER),
        r"backward pass .* failed: .*shape \(8,\) of torch.int64.* numbers to predict .*astype\('float32'\)",
    ),
    (
        "whole numbers, forward",
        ONE + PREPARE.format(labels="labels") + LOSS.format(loss=BINARY),
        r"labels Tensor of shape \(8,\) of torch.int64.* numbers to predict .*labels.astype\('float32'\) in data",
    ),
    ("below", PREPARE.format(labels="labels - 1"), "labels go from -1 to 2.*[Nn]umber the classes from 0"),
    ("no reach", LOSS.format(loss="torch.ones((), requires_grad=True) * 2"), r"trainable parameters.*model\(inputs\)"),
    ("no gradient", LOSS.format(loss=f"{CROSS}.detach()"), "does not depend on trainable parameters"),
    ("not finite", LOSS.format(loss=f"{CROSS} * float('nan')"), r"is not finite .*features range from -.*log\(0\)"),
    ("broadcast", FLOATS + LOOSE, r"line 24: .*target size.*outputs are Tensor of shape \(8, 4\)"),
    ("numbers", FLOATS, r"labels Tensor of shape \(8,\) of torch.float32.*functional.mse_loss"),
    ("metrics", RIGHT, r"metrics\(\) of the task failed, .*line 18.*shape \(120, 4\)"),
    ("no table", METRICS.format(metrics="0.5"), r"metrics\(\) in .*bad.py returned float; it must return a dict"),
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    folder = tmp_path_factory.mktemp("check")
    (folder / "good.py").write_text(TASK)
    make_shards(config_of(folder / "good.py"), folder / "shards")
    return open_shards(folder / "shards")


def config_of(task: Path, **settings: object) -> Config:
    return load(None, {"task": str(task), "workers": 2, **settings})


def test_a_task_that_can_be_trained_passes(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TASK)

    for settings in ({}, {"codec": {"push": "topk"}}, {"precision": "bf16"}, {"accumulate": 4}):
        check(config_of(tmp_path / "good.py", **settings), shards, "cpu")


MODELS = [
    ("nn.Linear(6, 8)", "nn.Linear(5, 8)", r"line 12: Linear\(in_features=5, .*shape \(8, 6\).*in_features must be 6"),
    ("nn.ReLU()", "nn.Conv1d(3, 8, 1)", r"line 13: Conv1d.*got inputs of shape \(8, 8\)"),
    ("nn.Linear(8, 4)", "nn.LazyLinear(4)", r"'2.weight' .*is lazy.*nn.Linear\(64, 10\) instead of nn.LazyLinear"),
    ("    )", "    ).double()", "is torch.float64; .*leave out .double"),
    ("nn.ReLU()", "nn.Relu()", r"model\(\) of the task failed, .*line 13: AttributeError"),
]
TASKS = [(TASK + code, told) for _, code, told in BAD] + [(TASK.replace(old, new), told) for old, new, told in MODELS]


@pytest.mark.parametrize(("task", "told"), TASKS, ids=[row[0] for row in BAD] + [row[1] for row in MODELS])
def test_a_mistake_is_told_with_what_to_do(shards: Shards, tmp_path: Path, task: str, told: str) -> None:
    (tmp_path / "bad.py").write_text(task)

    with pytest.raises(ConfigError, match=told):
        check(config_of(tmp_path / "bad.py"), shards, "cpu")


def test_a_gradient_that_the_wire_can_not_carry_is_told(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(TASK + LOSS.format(loss=f"{CROSS} * 1e9"))

    with pytest.raises(ConfigError, match=r"push is fp16, .* gradient has values \(up to .*Set codec.push to bf16"):
        check(config_of(tmp_path / "large.py", codec={"push": "fp16"}), shards, "cpu")


@pytest.mark.parametrize("servers", [0, 3])
def test_codecs_are_tried_without_servers_and_where_a_server_has_no_slice(
    shards: Shards, tmp_path: Path, servers: int
) -> None:
    (tmp_path / "good.py").write_text(TASK)
    (tmp_path / "large.py").write_text(TASK + LOSS.format(loss=f"{CROSS} * 1e9"))
    settings = {"servers": servers, "policy": "bsp" if servers else "dpsgd", "plan": {"slices": "whole"}}

    check(config_of(tmp_path / "good.py", codec={"push": "bf16"}, **settings), shards, "cpu")
    with pytest.raises(ConfigError, match=r"codec\.push is fp16, and the first gradient"):
        check(config_of(tmp_path / "large.py", codec={"push": "fp16"}, **settings), shards, "cpu")


def test_a_device_that_is_not_there_is_told(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TASK)

    with pytest.raises(ConfigError, match="Device 'cuda:99' can't be used here"):
        check(config_of(tmp_path / "good.py"), shards, "cuda:99")


def test_the_examples_of_a_check_have_every_class_and_the_ends_first(shards: Shards) -> None:
    part = [shards.shard(number) for number in range(len(shards))]

    which, rows = telling(part, 16)

    found = [int(part[shard].labels[row]) for shard, row in zip(which, rows, strict=True)]
    assert len(found) == 16
    assert found[:2] == [0, 3]
    assert set(found) == {0, 1, 2, 3}
    assert len(set(zip(which, rows, strict=True))) == 16

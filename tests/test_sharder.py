"""The sharder cuts a task's examples into shards once, the same every time, and says what is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.core.config import Config
from paceline.core.errors import ConfigError, DataError
from paceline.core.registry import names
from paceline.data.manifest import read_manifest
from paceline.data.shards import open_shards
from sharder.app import make_shards
from sharder.strategy import PACKAGE, build_strategy

REAL = Path(__file__).parents[2] / "shared/data/cifar10-small/cifar-10-small-binary.tar.gz"
TASK = """
import numpy as np
from paceline.data.dataset import Dataset, Labelled
SETTINGS = {"data": {"test": 0.25}}
def data(path):
    return Dataset(Labelled(np.arange(240.0).reshape(60, 4), np.arange(60) % 3))
def model():
    raise NotImplementedError
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "three.py"
    path.write_text(TASK)
    return str(path)


def config(task, **changed):
    return Config.model_validate({"task": task, "workers": 4, **changed})


def run_sharder(*arguments):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    return subprocess.run(
        [sys.executable, "-m", "sharder", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=plain,
        cwd=Path(__file__).parents[1],
        check=False,
    )


def test_every_example_is_in_one_shard_or_part(task, tmp_path):
    manifest = make_shards(config(task), tmp_path / "out")
    shards = open_shards(tmp_path / "out")

    parts = [*(shards.shard(number) for number in range(4)), shards.part("validation"), shards.part("test")]
    ids = np.concatenate([part.ids for part in parts])

    assert sorted(ids) == list(range(60))
    assert manifest.sizes == [11, 11, 10, 10]
    for part in parts:
        assert part.features[:, 0].tolist() == (part.ids * 4).tolist()
        assert part.labels.tolist() == (part.ids % 3).tolist()


def test_the_number_of_shards_can_be_set(task, tmp_path):
    manifest = make_shards(config(task, data={"shards": 6}), tmp_path / "out")

    assert len(manifest.shards) == 6


def test_a_second_run_changes_nothing(task, tmp_path):
    first = make_shards(config(task), tmp_path / "out")
    before = (tmp_path / "out/manifest.json").stat()
    said = []

    second = make_shards(config(task), tmp_path / "out", say=said.append)

    assert second == first
    assert (tmp_path / "out/manifest.json").stat() == before
    assert said == [f"4 shards of 42 examples are already there, in {tmp_path / 'out'}."]


def test_the_same_config_makes_the_same_bits(task, tmp_path):
    first = make_shards(config(task), tmp_path / "first")

    assert make_shards(config(task), tmp_path / "second") == first
    assert make_shards(config(task, seed=1), tmp_path / "third") != first


def test_other_settings_need_fresh(task, tmp_path):
    make_shards(config(task), tmp_path / "out")

    with pytest.raises(DataError, match="seed was 0 and is now 1"):
        make_shards(config(task, seed=1), tmp_path / "out")
    make_shards(config(task, seed=1), tmp_path / "out", fresh=True)

    assert read_manifest(tmp_path / "out").recipe.seed == 1


def test_other_examples_need_fresh(task, tmp_path):
    make_shards(config(task), tmp_path / "out")
    Path(task).write_text(TASK.replace("240.0", "1.0, 241.0"))

    with pytest.raises(DataError, match="examples was"):
        make_shards(config(task), tmp_path / "out")


def test_damaged_shards_are_made_anew_with_fresh(task, tmp_path):
    make_shards(config(task), tmp_path / "out")
    (tmp_path / "out/shard-2/labels.npy").unlink()

    with pytest.raises(DataError, match=r"labels\.npy is missing.*--fresh"):
        make_shards(config(task), tmp_path / "out")
    make_shards(config(task), tmp_path / "out", fresh=True)

    open_shards(tmp_path / "out").verify(2)


def test_more_shards_than_examples_are_refused(task, tmp_path):
    with pytest.raises(DataError, match="42 training examples can't fill 43 shards"):
        make_shards(config(task, workers=43), tmp_path / "out")


def test_an_unknown_strategy_is_refused_with_the_nearest(task, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'random'"):
        make_shards(config(task, data={"strategy": "randon"}), tmp_path / "out")


@pytest.mark.skipif(not REAL.exists(), reason="the small CIFAR-10 is not there")
def test_real_images_are_sharded(tmp_path):
    manifest = make_shards(config("cifar10", workers=2, data={"path": str(REAL)}), tmp_path / "out")

    shards = open_shards(tmp_path / "out")
    shards.verify("test")

    assert manifest.source == REAL.name
    assert manifest.sizes == [4250, 4250]
    assert manifest.parts["test"].classes == {str(label): 200 for label in range(10)}
    assert manifest.parts["validation"].classes == {str(label): 150 for label in range(10)}
    assert shards.shard(0).features.shape == (4250, 3, 32, 32)


@pytest.mark.parametrize("name", names(PACKAGE))
@pytest.mark.parametrize("shards", [1, 2, 7])
def test_every_strategy_deals_out_every_row_by_its_seed(name, shards):
    labels = np.arange(40) % 3
    features = np.random.default_rng(0).normal(size=(40, 5))
    strategy = build_strategy(name)

    dealt = [strategy.assign(labels, features, shards, np.random.default_rng(seed)) for seed in (1, 1)]

    assert len(dealt[0]) == shards
    assert sorted(set(np.concatenate(dealt[0]))) == list(range(40))
    assert all(np.array_equal(one, two) for one, two in zip(*dealt, strict=True))


def test_random_deals_round_robin():
    dealt = build_strategy("random").assign(np.zeros(11), np.zeros((11, 1)), 4, np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(11).tolist()

    assert [len(rows) for rows in dealt] == [3, 3, 3, 2]
    assert dealt[1].tolist() == [order[1], order[5], order[9]]


def test_an_option_that_a_strategy_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="there is no such setting"):
        build_strategy("random", {"clusters": 3})


def test_the_command_makes_shards_with_the_tasks_own_settings(task, tmp_path):
    done = run_sharder("--out", tmp_path / "out", "--set", f"task={task}", "--set", "workers=2")
    again = run_sharder("--out", tmp_path / "out", "--set", f"task={task}", "--set", "workers=2")

    assert (done.returncode, done.stderr) == (0, "")
    assert "2 shards of 36 examples are in" in done.stdout
    assert read_manifest(tmp_path / "out").parts["test"].examples == 15
    assert "already there" in again.stdout


def test_the_command_reads_a_config_file(task, tmp_path):
    (tmp_path / "run.yaml").write_text(f"task: {task}\nworkers: 3\n")

    done = run_sharder("--config", tmp_path / "run.yaml", "--out", tmp_path / "out")

    assert done.returncode == 0
    assert len(read_manifest(tmp_path / "out").shards) == 3


def test_the_command_ends_with_the_documented_exit_codes(task, tmp_path):
    (tmp_path / "file").write_text("")
    good = ("--set", f"task={task}")

    codes = {
        "usage": run_sharder("--no-such-option").returncode,
        "data": run_sharder("--out", tmp_path / "file", *good).returncode,
        "disk": run_sharder("--out", tmp_path / "file/out", *good).returncode,
        "config": run_sharder("--out", tmp_path / "out", *good, "--set", "data.shard=3").returncode,
    }

    assert codes == {"usage": 64, "data": 65, "disk": 73, "config": 78}


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("sharder.app, sharder.strategies.random, paceline.data.cifar, paceline.data.splits", {"torch"}),
        ("paceline.data.shards, paceline.data.sampler", {"torch", "sklearn", "typer", "grpc"}),
    ],
)
def test_the_data_side_imports_no_heavy_library(modules, absent):
    script = f"import sys, {modules}; print(sorted({absent!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"

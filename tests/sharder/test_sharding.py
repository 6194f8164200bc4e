"""The sharder cuts a task's examples into shards once, the same every time, and says what is wrong."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config, Options
from paceline.data import splits
from paceline.data.manifest import Rule, read_manifest
from paceline.data.progress import Progress
from paceline.data.shards import open_shards
from paceline.settings.load_settings import load, parse_sets
from paceline.sharder.reshard import reshard, settings_of
from paceline.sharder.sharding import main, make_shards
from tests.support.tree import ROOT, SHARED

REAL = SHARED / "data/cifar10-small/cifar-10-small-binary.tar.gz"
TASK = """
import numpy as np
from paceline.extend import Dataset, Labelled
SETTINGS = {"data": {"test": 0.25}}
def data(path):
    return Dataset(Labelled(np.arange(240.0).reshape(60, 4), np.arange(60) % 3))
def model():
    raise NotImplementedError
"""
TABLE = """
from paceline.extend import read_table
def data(path):
    return read_table(path, label="y")
def model():
    raise NotImplementedError
"""
OUTLIERS = """
import numpy as np
from paceline.extend import Dataset, Labelled
def data(path):
    middles = np.repeat([0.0, 100.0, 900.0], [21, 21, 2])[:, None]
    features = middles + np.random.default_rng(0).normal(size=(44, 3))
    return Dataset(Labelled(features, np.arange(44) % 2))
def model():
    raise NotImplementedError
"""


HALVES = """
import numpy as np
from paceline.extend import Assignment, ShardingStrategy
class Halves(ShardingStrategy):
    def assign(self, train, turns, rng, cluster):
        return Assignment(np.array_split(np.arange(len(train)), turns.shards))
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "three.py"
    path.write_text(TASK)
    return str(path)


class Heard(Progress):
    """Remembers what it heard."""

    def __init__(self):
        self.stages = []
        self.done = []
        self.said = []
        self.shards = []

    def stage(self, name, total):
        self.stages.append((name, total))
        self.done.append(0)

    def advance(self, count):
        self.done[-1] += count

    def shard(self, number, examples):
        self.shards.append(examples)

    def say(self, line):
        self.said.append(line)


def config(task, **changed):
    return Config.model_validate({"task": task, "workers": 4, **changed})


def written(folder):
    """Tells one writing of the manifest from another; reading it changes nothing."""
    found = (folder / "manifest.json").stat()
    return found.st_ino, found.st_mtime_ns


@pytest.fixture
def sharder(monkeypatch, capsys):
    """Does in this process what `python -m paceline.sharder` does with these arguments."""
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)

    def run(*arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["sharder", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(sys.argv, ended.value.code or 0, *capsys.readouterr())

    return run


def run_sharder(*arguments):
    """What the real process prints and ends with."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    return subprocess.run(
        [sys.executable, "-m", "paceline.sharder", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=plain,
        cwd=ROOT,
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


def test_a_second_run_changes_nothing(task, tmp_path):
    first = make_shards(config(task), tmp_path / "out")
    before = written(tmp_path / "out")
    heard = Heard()

    second = make_shards(config(task), tmp_path / "out", progress=heard)

    assert second == first
    assert written(tmp_path / "out") == before
    assert heard.said == [f"4 shards of 42 examples are already there, in {tmp_path / 'out'}."]


def test_shards_that_are_there_are_found_without_cutting_the_data_again(task, tmp_path, monkeypatch):
    first = make_shards(config(task), tmp_path / "out")
    monkeypatch.setattr(splits, "cut_off", None)

    assert make_shards(config(task), tmp_path / "out") == first
    with pytest.raises(TypeError):
        make_shards(config(task), tmp_path / "new")


def test_the_same_config_makes_the_same_bits(task, tmp_path):
    first = make_shards(config(task), tmp_path / "first")

    assert make_shards(config(task), tmp_path / "second").fingerprint == first.fingerprint
    assert make_shards(config(task, seed=1), tmp_path / "third").fingerprint != first.fingerprint


def test_other_settings_need_fresh_and_are_refused_before_the_data_are_read(task, tmp_path):
    make_shards(config(task), tmp_path / "out")
    Path(task).write_text(TASK.replace("def data(path):", "def data(path):\n    raise RuntimeError('read')"))

    with pytest.raises(DataError, match="seed was 0 and is now 1"):
        make_shards(config(task, seed=1), tmp_path / "out")
    with pytest.raises(ConfigError, match="RuntimeError: read"):
        make_shards(config(task), tmp_path / "out")
    Path(task).write_text(TASK)
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


@pytest.mark.parametrize(
    ("more", "error", "told"),
    [
        ({"workers": 43}, DataError, "42 training examples can't fill 43 shards"),
        ({"data": {"strategy": "randon"}}, ConfigError, "Did you mean 'random'"),
        ({"data": {"engine": "sparks"}}, ConfigError, "no 'sparks' among the engines: local, spark"),
    ],
)
def test_what_no_shards_can_be_made_of_is_refused(task, tmp_path, more, error, told):
    with pytest.raises(error, match=told):
        make_shards(config(task, **more), tmp_path / "out")


@pytest.mark.skipif(not REAL.exists(), reason="the small CIFAR-10 is missing")
def test_real_images_are_sharded(tmp_path):
    manifest = make_shards(config("cifar10", workers=2, data={"path": str(REAL)}), tmp_path / "out")

    shards = open_shards(tmp_path / "out")
    shards.verify("test")

    assert manifest.source == REAL.name
    assert manifest.sizes == [4250, 4250]
    assert manifest.parts["test"].classes == {str(label): 200 for label in range(10)}
    assert manifest.parts["validation"].classes == {str(label): 150 for label in range(10)}
    assert shards.shard(0).features.shape == (4250, 3, 32, 32)


def test_a_strategy_with_options_is_part_of_the_recipe(task, tmp_path):
    literal = {"strategy": {"name": "stratified", "literal": True}}
    make_shards(config(task, data=literal), tmp_path / "out")
    before = written(tmp_path / "out")

    make_shards(config(task, data={"strategy": literal["strategy"] | {"shuffle": True}}), tmp_path / "out")
    with pytest.raises(DataError, match=r"strategy was \{'name': 'stratified', 'literal': True\} and is now \{'name'"):
        make_shards(config(task, data={"strategy": "stratified"}), tmp_path / "out")

    assert written(tmp_path / "out") == before


def test_an_own_strategy_is_known_by_what_its_file_says(task, tmp_path):
    (tmp_path / "halves.py").write_text(HALVES)
    asked = {"task": str(task), "data": {"strategy": {"name": str(tmp_path / "halves.py")}}, "workers": 2}

    manifest = make_shards(load(overrides=asked), tmp_path / "out")

    assert manifest.recipe.strategy_file == hashlib.sha256(HALVES.encode()).hexdigest()
    assert "strategy_file" not in make_shards(config(task), tmp_path / "other").recipe.model_dump()


def test_a_manifest_that_nobody_would_read_is_refused_and_nothing_stays(task, tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.data.shard_writer.MAX_BYTES", 100)

    with pytest.raises(DataError, match=r"nobody reads more than 100: .* Make fewer shards"):
        make_shards(config(task), tmp_path / "out")
    assert not [found for found in tmp_path.iterdir() if "out" in found.name]


def test_the_manifest_tells_how_every_shard_is_made_up(task, tmp_path):
    manifest = make_shards(config(task, data={"strategy": "stratified"}, workers=3, batch_size=32), tmp_path / "out")

    assert [shard.classes for shard in manifest.shards] == [
        {"0": 5, "1": 5, "2": 4},
        {"0": 5, "1": 4, "2": 5},
        {"0": 4, "1": 5, "2": 5},
    ]
    assert [(shard.epoch_len, shard.duplicates, shard.clusters) for shard in manifest.shards] == [(14, 0, {})] * 3
    assert manifest.rule == Rule(workers=3, batch_size=32, worker_batch=10, lr=0.1, worker_lr=0.1 / 3)
    assert manifest.seconds >= 0


def test_duplicates_are_marked_do_not_lengthen_the_epoch_and_are_dealt_anew_once(tmp_path):
    """42 examples of two clouds and 2 outliers, which are a third cloud: few for 4 shards."""
    path = tmp_path / "outliers.py"
    path.write_text(OUTLIERS)
    wanted = {"strategy": {"name": "distribution_aware", "clusters": 3}, "validation": 0, "test": 0}

    manifest = make_shards(config(str(path), data=wanted), tmp_path / "out")
    shards = [open_shards(tmp_path / "out").shard(number) for number in range(4)]

    assert manifest.duplicates == (42, 43)
    assert manifest.train_examples == 44
    assert manifest.sizes == [13, 13, 12, 12]
    assert manifest.epoch_lens == [11, 11, 11, 11]
    assert [shard.duplicates for shard in manifest.shards] == [2] * 4
    assert [sorted(shard.clusters.values()) for shard in manifest.shards] == 2 * [[2, 5, 6]] + 2 * [[2, 5, 5]]
    assert all({42, 43} <= set(shard.ids) for shard in shards)

    anew = reshard(tmp_path / "out", config(str(path), workers=2, data={"validation": 0, "test": 0}), tmp_path / "two")

    assert manifest.sparse
    assert anew.sizes == [22, 22]
    assert anew.duplicates == ()


def test_shards_are_in_proportion_to_weights(task, tmp_path):
    manifest = make_shards(config(task, workers=3, data={"weights": "1,1,2", "test": 0.2}), tmp_path / "out")

    assert manifest.train_examples == 39
    assert manifest.sizes == manifest.epoch_lens == [10, 10, 19]
    with pytest.raises(DataError, match=r"weights was \(1.0, 1.0, 2.0\) and is now \(\)"):
        make_shards(config(task, workers=3, data={"test": 0.2}), tmp_path / "out")


def test_the_time_that_dealing_took_does_not_make_other_shards(task, tmp_path):
    manifest = make_shards(config(task), tmp_path / "out")

    assert manifest.model_copy(update={"seconds": 99.0}).fingerprint == manifest.fingerprint
    assert manifest.model_copy(update={"train_examples": 99}).fingerprint != manifest.fingerprint


def test_classes_to_deal_by_may_be_those_of_another_task(task, tmp_path):
    """3 classes to train on, 12 fine ones in which they lie: 3 or 4 of each among 42 examples, for 2 shards."""
    fine, other = tmp_path / "fine.py", tmp_path / "other.py"
    fine.write_text(TASK.replace("% 3", "% 12"))
    other.write_text(TASK.replace("240.0", "1.0, 241.0"))

    def shards(by):
        wanted = {"strategy": {"name": "stratified", "by": str(by)}}
        make_shards(config(task, workers=2, data=wanted), tmp_path / "out")
        return [open_shards(tmp_path / "out").shard(number) for number in (0, 1)]

    counts = [np.bincount(shard.ids % 12, minlength=12) for shard in shards(fine)]

    assert abs(counts[0] - counts[1]).max() <= 1
    assert read_manifest(tmp_path / "out").shards[0].classes.keys() == {"0", "1", "2"}
    with pytest.raises(DataError, match=r"other\.py has other examples than .*three\.py.*Set data\.strategy\.by"):
        make_shards(config(task, data={"strategy": {"name": "stratified", "by": str(other)}}), tmp_path / "new")


def test_options_of_a_strategy_may_stand_above_its_name(tmp_path):
    (tmp_path / "run.yaml").write_text("data: {strategy: distribution_aware}")

    alone = load(None, {"data": {"strategy": {"name": "random"}}})
    above = load(tmp_path / "run.yaml", parse_sets(["data.strategy.clusters=20"]))
    other = load(tmp_path / "run.yaml", parse_sets(["data.strategy=stratified"]))

    assert alone.data == Config().data
    assert above.data.strategy == Options(name="distribution_aware", clusters=20)
    assert other.data.strategy == Options(name="stratified")


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([1, 1], r"data\.weights has 2 numbers for 4 shards; give one for each shard"),
        ([1, 1, 1, 0], r"weights.*greater than 0"),
        ("1,1,1,fast", r"weights.*valid number"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, found):
    with pytest.raises(ConfigError, match=found):
        load(None, {"workers": 4, "data": {"weights": weights}})


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        (
            "--set data.strategy=distribution_aware --set data.strategy.clusters=4",
            {"name": "distribution_aware", "clusters": 4},
        ),
        ("--literal --set data.strategy=stratified", {"name": "stratified", "literal": True}),
    ],
)
def test_a_strategy_and_its_options_may_be_set_on_the_command_line(sharder, task, tmp_path, words, strategy):
    done = sharder("--out", tmp_path / "out", "--set", f"task={task}", *words.split())

    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "out").recipe.strategy == Options(**strategy)


def test_the_command_makes_shards_with_the_tasks_own_settings(sharder, task, tmp_path):
    done = run_sharder("--out", tmp_path / "out", "--set", f"task={task}", "--set", "workers=2")
    again = sharder("--out", tmp_path / "out", "--set", f"task={task}", "--set", "workers=2")

    assert (done.returncode, done.stderr) == (0, "")
    assert "2 shards of 36 examples are in" in done.stdout
    assert read_manifest(tmp_path / "out").parts["test"].examples == 15
    assert (again.returncode, again.stderr) == (0, "")
    assert "already there" in again.stdout


def test_the_command_reads_a_config_file_which_may_set_the_number_of_shards(sharder, task, tmp_path):
    (tmp_path / "run.yaml").write_text(f"task: {task}\nworkers: 3\ndata: {{shards: 6}}\n")

    done = sharder("--config", tmp_path / "run.yaml", "--out", tmp_path / "out")

    assert done.returncode == 0
    assert len(read_manifest(tmp_path / "out").shards) == 6


def test_the_command_ends_with_the_documented_exit_codes(sharder, task, tmp_path):
    (tmp_path / "file").write_text("")
    good = ("--set", f"task={task}")

    codes = {
        "usage": sharder("--no-such-option").returncode,
        "data": sharder("--out", tmp_path / "file", *good).returncode,
        "disk": sharder("--out", tmp_path / "file/out", *good).returncode,
        "config": sharder("--out", tmp_path / "out", *good, "--set", "data.shard=3").returncode,
    }

    assert codes == {"usage": 64, "data": 65, "disk": 73, "config": 78}


def test_the_data_side_imports_no_heavy_library():
    """Training's part of it, and then that of the sharder besides."""
    script = """if True:
        import sys
        import paceline.data.shards, paceline.data.sampler
        print(sorted({"torch", "sklearn", "typer", "grpc"} & set(sys.modules)))
        import paceline.sharder.sharding, sharder.strategies.distribution_aware, paceline.data.splits
        print(sorted({"torch", "sklearn"} & set(sys.modules)))
    """

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n[]\n"


@pytest.mark.parametrize("strategy", ["random", "distribution_aware"])
def test_every_stage_of_the_work_tells_how_far_it_is(task, tmp_path, strategy):
    heard = Heard()

    manifest = make_shards(config(task, data={"strategy": {"name": strategy}}), tmp_path / "out", progress=heard)

    clusters = ["clustering"] if strategy == "distribution_aware" else []
    assert [name for name, _ in heard.stages] == ["checking", *clusters, "writing"]
    assert heard.done == [total for _, total in heard.stages]
    assert heard.shards == manifest.sizes


@pytest.mark.parametrize("strategy", ["random", "stratified", "round_robin", "distribution_aware"])
def test_shards_dealt_anew_are_what_the_data_would_give(task, tmp_path, strategy):
    wanted = {"strategy": {"name": strategy}}
    make_shards(config(task, workers=3, data=wanted), tmp_path / "three")
    five = make_shards(config(task, workers=5, data=wanted), tmp_path / "five")

    anew = reshard(tmp_path / "three", config(task, workers=5, data=wanted), tmp_path / "anew")
    back = reshard(tmp_path / "anew", config(task, workers=3, data=wanted), tmp_path / "back")

    assert anew.fingerprint == five.fingerprint
    assert back.fingerprint == read_manifest(tmp_path / "three").fingerprint


def test_shards_dealt_anew_by_another_tasks_labels_are_what_the_data_would_give(task, tmp_path):
    fine = tmp_path / "fine.py"
    fine.write_text(TASK.replace("% 3", "% 12"))
    wanted = {"strategy": {"name": "stratified", "by": str(fine)}}
    three = make_shards(config(task, workers=3, data=wanted), tmp_path / "three")
    five = make_shards(config(task, workers=5, data=wanted), tmp_path / "five")

    anew = reshard(tmp_path / "three", config(task, workers=5, data=wanted), tmp_path / "anew")
    back = reshard(tmp_path / "anew", config(task, workers=3, data=wanted), tmp_path / "back")
    found = reshard(tmp_path / "three", config(task, workers=5, data=wanted), tmp_path / "five")

    assert "test" in three.parts, "not all labels of the other task are dealt by"
    assert anew.fingerprint == five.fingerprint == found.fingerprint
    assert back.fingerprint == three.fingerprint


def test_names_of_classes_and_columns_are_kept_and_dealt_anew(tmp_path):
    rows = "".join(f"{number},{'uvw'[number % 3]},{'ab'[number % 2]}\n" for number in range(60))
    (tmp_path / "a.csv").write_text("x,z,y\n" + rows)
    task = tmp_path / "own.py"
    task.write_text(TABLE)
    heard = Heard()
    first = make_shards(config(str(task), data={"path": str(tmp_path / "a.csv")}), tmp_path / "old", progress=heard)

    anew = reshard(tmp_path / "old", load(None, {"task": str(task)}, settings_of(tmp_path / "old")), tmp_path / "new")

    assert first == read_manifest(tmp_path / "old")
    assert first.classes == anew.classes == ("a", "b")
    assert first.columns is not None
    assert first.columns == anew.columns
    assert (first.columns.label, first.columns.names) == ("y", ("x", "z=u", "z=v", "z=w"))
    assert heard.said[:2] == [
        "a.csv: cells separated by commas, UTF-8; 2 columns besides the label 'y' (2 classes) make 4 features",
        "a.csv: a feature for each text of 'z' (3)",
    ]
    assert list(first.as_read) == list(anew.as_read) == heard.said[:2]


@pytest.mark.parametrize("cut", [{"validation": 0.2, "test": 0.3}, {"fold": [1, 3]}])
def test_shards_dealt_anew_without_any_other_wish_are_the_same(task, tmp_path, cut):
    wanted = {"strategy": "stratified", "weights": "1,1,2", **cut}
    first = make_shards(config(task, workers=3, seed=7, data=wanted), tmp_path / "old")

    anew = reshard(tmp_path / "old", load(None, {"task": task}, settings_of(tmp_path / "old")), tmp_path / "new")

    assert anew.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 1}, r"seed is 1, but the shards were made with 0"),
        ({"data": {"validation": 0.3}}, r"data\.validation is 0\.3, but the shards were made with 0\.15"),
        ({"data": {"test": 0.5}}, r"data\.test is 0\.5, but the shards were made with 0\.15"),
        ({"data": {"fold": [0, 3]}}, r"data\.fold is \(0, 3\), but the shards were made with None"),
    ],
)
def test_dealing_anew_changes_nothing_of_what_trains(task, tmp_path, changed, told):
    make_shards(config(task), tmp_path / "old")

    with pytest.raises(ConfigError, match=told + ". Dealing shards again can't change which examples train"):
        reshard(tmp_path / "old", config(task, **changed), tmp_path / "new")

    assert not (tmp_path / "new").exists()


def test_shards_can_be_dealt_anew_in_their_own_folder(task, tmp_path):
    make_shards(config(task, workers=3), tmp_path / "out")
    six = make_shards(config(task, workers=6), tmp_path / "six")

    with pytest.raises(DataError, match=r"shards was 3 and is now 6.*--fresh"):
        reshard(tmp_path / "out", config(task, workers=6), tmp_path / "out")
    reshard(tmp_path / "out", config(task, workers=6), tmp_path / "out", fresh=True)

    assert read_manifest(tmp_path / "out").fingerprint == six.fingerprint
    assert open_shards(tmp_path / "out").shard(5).ids.tolist() == open_shards(tmp_path / "six").shard(5).ids.tolist()


def test_damaged_shards_are_not_dealt_anew(task, tmp_path):
    make_shards(config(task), tmp_path / "out")
    features = tmp_path / "out/shard-1/features.npy"
    features.write_bytes(features.read_bytes()[:-1] + b"!")

    with pytest.raises(DataError, match=r"shard-1/features.npy is damaged"):
        reshard(tmp_path / "out", config(task, workers=2), tmp_path / "new")

    assert not (tmp_path / "new").exists()


def test_shards_that_were_dealt_anew_before_are_found_without_reading_the_old_ones(task, tmp_path):
    make_shards(config(task), tmp_path / "old")
    first = reshard(tmp_path / "old", config(task, workers=2), tmp_path / "new")
    heard = Heard()

    assert reshard(tmp_path / "old", config(task, workers=2), tmp_path / "new", progress=heard) == first
    assert heard.stages == []
    assert heard.said == [f"2 shards of 42 examples are already there, in {tmp_path / 'new'}."]


def test_shards_dealt_anew_by_another_task_are_found_or_refused(task, tmp_path):
    by = tmp_path / "halves.py"
    by.write_text(TASK.replace("% 3", "// 30"))
    make_shards(config(task), tmp_path / "old")
    wanted = config(task, workers=2, data={"strategy": {"name": "stratified", "by": str(by)}})
    first = reshard(tmp_path / "old", wanted, tmp_path / "new")

    assert reshard(tmp_path / "old", wanted, tmp_path / "new") == first
    by.write_text(TASK.replace("% 3", "// 20"))
    with pytest.raises(DataError, match="by was"):
        reshard(tmp_path / "old", wanted, tmp_path / "new")


def test_a_missing_pyspark_is_told(task, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)

    with pytest.raises(ConfigError, match=r"pip install 'paceline\[spark\]'"):
        make_shards(config(task, data={"engine": "spark"}), tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_nan_in_a_mapped_file_is_found(tmp_path):
    features = np.zeros((30, 4), np.float32)
    features[17, 2] = np.nan
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "labels.npy", np.arange(30) % 3)
    path = tmp_path / "mapped.py"
    path.write_text(
        "from paceline.data.npz import read_npy\n"
        "def data(path):\n    return read_npy(path + '/features.npy', path + '/labels.npy')\n"
        "def model():\n    raise NotImplementedError\n"
    )

    with pytest.raises(DataError, match="features of example 17 hold NaN"):
        make_shards(config(str(path), data={"path": str(tmp_path)}), tmp_path / "out")


def test_other_labels_to_deal_by_ask_for_fresh_shards(task, tmp_path):
    by = tmp_path / "halves.py"
    by.write_text(TASK.replace("% 3", "// 30"))
    wanted = {"data": {"strategy": {"name": "stratified", "by": str(by)}}}
    make_shards(config(task, **wanted), tmp_path / "out")
    by.write_text(TASK.replace("% 3", "// 20"))

    with pytest.raises(DataError, match="by was"):
        make_shards(config(task, **wanted), tmp_path / "out")

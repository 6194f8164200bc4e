"""`paceline local` trains a linear model on one machine; the tasks svm and rcv1 read what users have."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.data.dataset import is_sparse
from paceline.data.linear_model import read_linear_model
from paceline.launch.linear_without_servers import settings_of, train_here
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.tasks.task import load_task
from paceline_papers.rcv1_like import rcv1_like, write_lyrl2004, write_svmlight
from paceline_studies.planning.sizes import task_shapes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small RCV1-like set in both forms."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "rcv1").mkdir()
    dataset = rcv1_like(600, 200, features=2000)
    write_lyrl2004(dataset, folder / "rcv1")
    assert dataset.test is not None
    write_svmlight(dataset.train, folder / "small")
    write_svmlight(dataset.test, folder / "small.t")
    return folder


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_model_is_trained_and_applied(made: Path, tmp_path: Path):
    done = run("local", "svm", "--data", made / "small", "--epochs", 5, "--set", "optimizer.lr=0.1", "--out", tmp_path)

    assert done.exit_code == 0, done.output
    accuracy = done.output.strip().splitlines()[-1].removeprefix("test accuracy ").partition(",")[0]
    assert float(accuracy) > 0.8
    for name in ("last.safetensors", "last.liblinear"):
        applied = run("predict", tmp_path / name, made / "small.t")
        assert f"accuracy {accuracy}" in applied.output


def test_one_thread_gives_the_same_bits_each_time(made: Path, tmp_path: Path):
    config = read_config("svm", Flags(data=str(made / "small"), epochs=2))

    first = train_here(config, 1, False, tmp_path / "first")
    second = train_here(config, 1, False, tmp_path / "second")

    assert first.test == second.test
    weights = [read_linear_model(tmp_path / name / "last.safetensors").weights for name in ("first", "second")]
    np.testing.assert_array_equal(*weights)


def test_programs_get_json(made: Path, tmp_path: Path):
    done = run("local", "svm", "--data", made / "small", "--epochs", 2, "--average", "--json", "--out", tmp_path)

    told = json.loads(done.output)
    assert told["examples"] == 600
    assert len(told["epochs"]) == 2
    assert set(told["test"]) >= {"accuracy", "precision", "recall", "f1", "majority", "loss"}


def test_a_task_of_torch_is_refused():
    with pytest.raises(ConfigError, match="Task digits has updates: dense; `paceline local` trains linear models"):
        train_here(read_config("digits"), 1, False, Path("nowhere"))


def test_a_warm_up_is_refused(made: Path):
    warm = ["schedule.warmup_epochs=1", "schedule.warmup_start=0.5"]
    with pytest.raises(ConfigError, match=r"schedule\.warmup_epochs is set, but `paceline local` has no warm-up"):
        settings_of(read_config("svm", Flags(data=str(made / "small"), sets=warm)), 1, False)


def test_too_few_examples_to_validate_name_the_setting_that_asks_for_it(tmp_path: Path):
    (tmp_path / "few").write_text("1 1:1\n-1 2:1\n" * 6)

    with pytest.raises(DataError, match=r"^svm\.validation asks for 1 of 10 .* Change svm\.validation, or give more"):
        train_here(
            read_config("svm", Flags(data=str(tmp_path / "few"), sets=["svm.validation=0.1"])),
            1,
            False,
            tmp_path / "out",
        )


def test_a_mini_batch_of_more_than_all_examples_is_refused(made: Path, tmp_path: Path):
    config = read_config("svm", Flags(data=str(made / "small"), sets=["batch_size=601"]))

    with pytest.raises(ConfigError, match=r"batch_size is 601, .* only 600 training examples\. Set it lower"):
        train_here(config, 1, False, tmp_path)


def test_a_folder_that_can_not_be_made_is_told_before_training(made: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paceline.launch.linear_without_servers.train", lambda *_: pytest.fail("it trained"))

    with pytest.raises(DiskError, match=r"Can't make .*small: File exists\. Give another folder with --out"):
        train_here(read_config("svm", Flags(data=str(made / "small"))), 1, False, made / "small")


def test_the_rate_and_the_mean_are_those_of_a_run(made: Path):
    config = read_config("svm", Flags(data=str(made / "small")))

    assert settings_of(config, 2, False).schedule == config.schedule
    assert settings_of(config, 2, False).mean_from == config.mean_from == 22.5
    assert settings_of(config, 2, True).mean_from == 29


def test_no_example_is_kept_back_but_for_a_rule_that_looks_at_it(made: Path, tmp_path: Path):
    ruled = read_config("svm", Flags(data=str(made / "small"), epochs=2, sets=["svm.stopping.rule=window"]))

    assert train_here(read_config("svm", Flags(data=str(made / "small"), epochs=2)), 1, False, tmp_path).examples == 600
    assert train_here(ruled, 1, False, tmp_path).examples == 540


def test_a_file_beside_it_is_the_test_set_or_one_that_is_named(made: Path, tmp_path: Path):
    beside = load_task("svm").data(str(made / "small"))
    (tmp_path / "alone").write_bytes((made / "small").read_bytes())
    alone = load_task("svm").data(str(tmp_path / "alone"))
    named = load_task("svm").data(f"{tmp_path / 'alone'},{made / 'small.t'}")

    assert is_sparse(beside.train.features)
    assert alone.test is None
    assert len(beside.test) == len(named.test) == 200


def test_rcv1_is_read_as_published_and_one_topic_told_from_all_others(made: Path):
    found = load_task("rcv1").data(str(made / "rcv1"))
    other = load_task("rcv1", positive="CCAT").data(str(made / "rcv1"))

    assert found.train.features.shape == (600, 47236)
    assert set(np.unique(found.train.labels)) == {0, 1}
    np.testing.assert_array_equal(found.train.labels, other.train.labels)
    with pytest.raises(DataError, match="NONE"):
        load_task("rcv1", positive="NONE").data(str(made / "rcv1"))


@pytest.mark.parametrize(("positive", "labels"), [("3", [0, 1, 0]), ("+2", [0, 0, 1]), ("1", [1, 0, 0])])
def test_one_class_of_many_is_told_from_all_others(tmp_path: Path, positive: str, labels: list[int]):
    (tmp_path / "three").write_text("1 1:1\n3 2:1\n2 1:1 2:1\n")

    dataset = load_task("svm", positive=positive).data(str(tmp_path / "three"))

    assert dataset.train.labels.tolist() == labels
    assert dataset.classes == (f"not {positive.lstrip('+')}", positive.lstrip("+"))


def test_a_class_may_be_given_as_a_number(tmp_path: Path):
    assert read_config("svm", Flags(sets=["svm.positive=3"])).svm.positive == "3"


def test_one_class_alone_is_refused(tmp_path: Path):
    (tmp_path / "one").write_text("2 1:1\n2 2:1\n")

    for positive in (None, "2"):
        with pytest.raises(DataError, match=r"All 2 examples of .*one have the label 2; expected two classes, or more"):
            load_task("svm", positive=positive).data(str(tmp_path / "one"))


def test_more_than_two_classes_are_numbered_and_keep_their_names(tmp_path: Path):
    (tmp_path / "three").write_text("1 1:1\n3 2:1\n2 1:1 2:1\n")

    found = load_task("svm").data(str(tmp_path / "three"))

    assert (found.train.labels.tolist(), found.classes) == ([0, 2, 1], ("1", "2", "3"))
    with pytest.raises(DataError, match=r"has no class '7' \(svm\.positive\); it has 1, 2, 3"):
        load_task("svm", positive="7").data(str(tmp_path / "three"))


def test_labels_that_are_no_classes_are_refused(tmp_path: Path):
    (tmp_path / "prices").write_text("1.5 1:1\n3 2:1\n2.25 1:1 2:1\n")

    with pytest.raises(DataError, match=r"prices has 3 different labels; expected .* classes, .* svm\.positive"):
        load_task("svm").data(str(tmp_path / "prices"))


def test_a_task_without_classes_to_choose_from_refuses_one():
    with pytest.raises(ConfigError, match=r"svm\.positive is '3', but data\(\) of the task digits has no"):
        load_task("digits", positive="3")


def test_a_linear_task_has_no_model_of_torch():
    with pytest.raises(ConfigError, match="linear model, not a torch module"):
        load_task("svm").model()


def test_a_plan_of_a_linear_model_needs_its_width():
    with pytest.raises(ConfigError, match="--shapes FILE"):
        task_shapes(read_config("svm"))

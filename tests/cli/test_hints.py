"""The command that a run proposes at its end: it fits the run, and it starts."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.hints import next_lines
from paceline.core.chief.warnings import RunWarning
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load, write_yaml

FLAGS = {"-w": "workers", "-s": "servers", "--epochs": "epochs", "--data": "data", "--policy": "policy", "--run": "run"}


def hint(config: Config, folder: Path, *warnings: RunWarning) -> str:
    folder.mkdir(parents=True)
    write_yaml(config, folder / "config.yaml")
    return "".join(next_lines(config, RunFolder(folder), warnings))


def starts(line: str) -> Config:
    """What the proposed command would run."""
    _, _, what, *words = shlex.split(line[line.index("paceline run") :])
    flags: dict[str, Any] = {"sets": [], "slow": []}
    for key, value in zip(words[::2], words[1::2], strict=True):
        if key in ("--set", "--slow"):
            flags[key.strip("-").replace("set", "sets")].append(value)
        else:
            flags[FLAGS[key]] = value
    return read_config(what, Flags(**flags))


def bad(*settings: str) -> RunWarning:
    return RunWarning("loss_above_start", "the loss rose", "something", list(settings), 1.0)


def test_settings_that_flags_do_not_tell_come_from_the_runs_own_file(tmp_path: Path) -> None:
    config = read_config("digits", Flags(sets=["optimizer.name=adam", "optimizer.lr=0.003"], run="one"))
    found = starts(hint(config, tmp_path / "one", bad("batch_size=16")))
    assert (found.run, found.optimizer) == ("one-2", config.optimizer)


def test_a_run_that_lies_elsewhere_gets_a_name_that_is_free_where_the_new_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/one-2").mkdir(parents=True)
    config = read_config("digits", Flags(sets=["optimizer.name=adam", "optimizer.lr=0.003"], run="one"))
    (tmp_path / "archive/one-3").mkdir(parents=True)

    assert starts(hint(config, tmp_path / "archive/one", bad("batch_size=16"))).run == "one-3"


def test_other_settings_that_the_proposed_policy_refuses_are_not_proposed(tmp_path: Path) -> None:
    config = read_config("digits", Flags(policy="asp", sets=["overlap=true"]))
    assert hint(config, tmp_path / "one", bad("policy=shat")) == "", "shat does not overlap"


@pytest.mark.parametrize(
    ("given", "sets", "flags"),
    [
        ({"workers": 3}, ["optimizer.lr=0.01"], "-w 3 --set optimizer.lr=0.01"),
        (
            {"servers": 2, "policy": {"name": "ssp", "bound": 3}},
            ["optimizer.lr=0.01"],
            "-s 2 --policy ssp --set policy.bound=3 --set optimizer.lr=0.01",
        ),
        ({"policy": {"name": "ssp", "bound": 3}}, ["policy=asp"], "--set policy=asp"),
        ({"policy": "ssp:3"}, ["optimizer.lr=0.01"], "--policy ssp:3 --set optimizer.lr=0.01"),
        ({"policy": "ssp:3"}, ["policy=asp"], "--set policy=asp"),
        (
            {"data": {"strategy": "random"}, "slow": {"1": "2x"}},
            ["batch_size=64"],
            """--set 'data.strategy="random"' --set 'slow.1="2x"' --set batch_size=64""",
        ),
    ],
)
def test_after_a_bad_run_of_a_script_its_own_command_is_proposed_and_the_script_is_not_run(
    tmp_path: Path, given: dict[str, Any], sets: list[str], flags: str
) -> None:
    script = tmp_path / "my train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef data(path): ...\n")
    data = {"source": "script", **given.pop("data", {})}
    given = {"task": str(script), "data": data, "arguments": ["--size", "2"], **given}
    config = load(None, given, {})
    folder = RunFolder(tmp_path / "one")
    folder.path.mkdir()
    write_yaml(config, folder.config)
    folder.first_settings.write_text(json.dumps({**given, "run": "one"}))

    (line,) = next_lines(config, folder, (bad(*sets),))

    assert line == f"Next, try {sets[0]}: paceline launch {flags} '{script}' --size 2"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("metrics", "proposes"),
    [
        ({"test_recall": 0.04, "test_majority": 0.8}, True),
        ({"test_recall": 0.6, "test_majority": 0.8}, False),
        ({"test_recall": 0.04, "test_majority": 0.5}, False),
        ({"test_recall": 0.04, "test_majority": 0.8, "validation_recall": 0.5, "validation_majority": 0.8}, False),
        ({}, False),
    ],
)
def test_a_linear_model_that_hardly_finds_a_rare_class_is_answered_with_class_weights(
    tmp_path: Path, metrics: dict[str, float], proposes: bool
) -> None:
    config, folder = read_config("svm", Flags(data="a9a", workers=2)), RunFolder(tmp_path)
    line = "".join(next_lines(config, folder, (), metrics))
    command = "paceline run svm --data a9a -w 2 --set svm.class_weights=balanced"
    assert (line == f"Next, see whether class weights find more of the rare class: {command}") is proposes
    weighed = read_config("svm", Flags(data="a9a", workers=2, sets=["svm.class_weights=balanced"]))
    assert not any("see whether class" in each for each in next_lines(weighed, folder, (), metrics))


def test_after_a_bad_run_of_a_linear_model_it_proposes_what_costs_errors_more(tmp_path: Path) -> None:
    line = hint(read_config("svm", Flags(data="a9a")), tmp_path / "one", bad("svm.class_weights=balanced"))
    assert line.endswith("paceline run svm --data a9a --set svm.class_weights=balanced")
    assert starts(line).svm.class_weights == "balanced"


@pytest.mark.parametrize("sets", [[], ["optimizer.lr=1e9"]], ids=["flags", "its own file"])
def test_after_a_bad_run_it_proposes_what_to_try_for_it(tmp_path: Path, sets: list[str]) -> None:
    line = hint(read_config("digits", Flags(sets=sets)), tmp_path / "one", bad(), bad("optimizer.lr=0.01"))
    assert line.startswith("Next, try optimizer.lr=0.01: paceline run ")
    assert starts(line).optimizer.options["lr"] == 0.01


def test_after_a_good_run_it_proposes_nothing(tmp_path: Path) -> None:
    assert hint(read_config("digits"), tmp_path / "one") == ""


def test_after_a_bad_run_without_a_setting_that_helps_it_proposes_nothing(tmp_path: Path) -> None:
    assert hint(read_config("digits"), tmp_path / "one", bad()) == ""

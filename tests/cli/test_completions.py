"""What the shell proposes after TAB, and the version."""

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.cli import completions
from paceline.cli.__main__ import app
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.settings.config import ScheduleConfig


def completed(line: str, folder: Path, shell: str = "bash") -> str:
    """What a shell would get for this command line."""
    words = len(line.split(" ")) - 1
    told = {completions.ASKED_BY: f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(words)}
    told["_TYPER_COMPLETE_ARGS"] = line
    ended = subprocess.run(
        [sys.executable, "-c", "from paceline.cli.__main__ import main; main()"],
        env=os.environ | told | {"PYTHONPATH": str(Path(paceline.__file__).parents[1])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout


def test_a_shell_is_told_the_policies_that_begin_so(tmp_path):
    assert completed("paceline run digits --policy dan", tmp_path).split() == ["dana"]


def test_tasks_are_the_built_in_ones_and_files_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digital.py").touch()
    (tmp_path / "digits.yaml").touch()
    (tmp_path / "digits.txt").touch()

    assert completions.tasks("dig") == ["digits", "digital.py", "digits.yaml"]


def test_runs_come_newest_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["digits-new", "digits-old", "wine-1"]):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
        os.utime(tmp_path / "runs" / name / "config.yaml", (1000 - age, 1000 - age))

    assert completions.runs("digits") == ["digits-new", "digits-old"]


def test_settings_come_with_what_they_mean():
    meaning = ScheduleConfig.model_fields["warmup_epochs"].description

    assert completions.settings("schedule.warmup_e") == [("schedule.warmup_epochs=", meaning)]
    assert [key for key, _ in completions.settings("polic")] == ["policy="]


def test_behind_the_dot_of_an_extension_come_its_name_and_the_options_of_all_that_can_stand_there():
    lr = Sgd.model_fields["lr"].description

    assert completions.settings("optimizer.lr") == [
        ("optimizer.lr=", f"adagrad, adam, adamw, ftrl, rmsprop, sgd: {lr}")
    ]
    policy = dict(completions.settings("policy."))
    assert policy["policy.bound="].startswith("ssp: ")
    assert policy["policy.tau="].startswith("easgd, broadcast: "), "with servers and without"
    assert "dana" in policy["policy.name="].split(", ")
    for key in (
        "codec.push.share=",
        "codec.pull.name=",
        "topology.children=",
        "data.strategy.by=",
        "data.engine.master=",
    ):
        assert [found for found, _ in completions.settings(key[:-1])] == [key]
    assert completions.settings("workers.") == []


def test_bash_puts_no_blank_behind_a_key_for_two_proposals_have_it_in_common(tmp_path):
    found = completed("paceline run digits --set optimizer.lr", tmp_path)
    assert found.split() == ["optimizer.lr=", "optimizer.lr=VALUE"]


@pytest.mark.parametrize(("line", "is_told"), [("--set optimizer.", True), ("--policy dan", False), ("--eng", False)])
def test_zsh_is_told_to_put_no_blank_behind_a_key(tmp_path: Path, line: str, is_told: bool):
    found = completed(f"paceline run digits {line}", tmp_path, "zsh")

    assert found.startswith("local -a unspaced=(-S ''); _arguments -O unspaced '*: :((\"optimizer.name=\":") == is_told
    assert is_told or "unspaced" not in found


def test_other_shells_are_told_what_typer_says(tmp_path):
    with redirect_stdout(told := StringIO()), completions.without_blank("complete_fish"):
        print("a=")
    assert told.getvalue() == "a=\n"


def test_presets_are_proposed():
    assert completions.paper_presets("hog") == ["hogwild"]


def test_the_version_is_that_of_the_package():
    shown = CliRunner().invoke(app, ["--version"])

    assert (shown.exit_code, shown.output.split()[0]) == (0, "paceline")

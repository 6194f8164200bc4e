"""`paceline doctor`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from paceline.cli.doctor import doctor
from paceline.launch.status.chief_status import plain
from tests.launch.status.test_evidence import status
from tests.launch.status.test_explained import folder, trained


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_says_where_the_time_went_the_cause_and_what_other_policies_give(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(here, *trained(), exit_code=0)
    doctor("one")
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("run one, over all of it: the workers' time went into compute ")
    assert "cause: 77% of the 3 other workers' time went into waiting for worker-3" in told
    assert "By simulation of these figures the same epochs take: asp about " in told
    assert told.endswith("bsp has taken 30 s.")


def test_a_program_gets_one_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(here, *trained(), exit_code=0)
    doctor(None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["causes"][0]["settings"] == ["policy=asp"]
    assert found["causes"][0]["share"] == pytest.approx(0.58, abs=0.01)
    assert [each["policy"] for each in found["predicted"]][-1] == "ssp:3"


def test_a_run_with_nothing_wrong_is_said_to_be_such(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(here, *trained(slow=0.021), exit_code=0)
    doctor()
    assert "run one: nothing is wrong with it, as far as its figures go." in capsys.readouterr().out


def test_a_run_that_is_not_there_ends_it_with_the_names_of_others(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(here, exit_code=0)
    with pytest.raises(SystemExit) as end:
        doctor("two")
    assert end.value.code == 64
    assert "There is no run 'two' in" in capsys.readouterr().err


def test_a_folder_without_figures_ends_it_with_what_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(here, exit_code=1)
    with pytest.raises(SystemExit) as end:
        doctor("one")
    assert end.value.code == 65
    assert "it has not trained. Train it, or look into" in " ".join(capsys.readouterr().err.split())


def test_a_disk_that_was_full_for_a_while_is_said_without_other_policies(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trained(slow=0.021)
    for line in lines[5:25]:
        line["servers"][0]["figures"]["disk_trouble"] = "No space left on device."
    folder(here, *lines, exit_code=0)
    doctor("one")
    told = capsys.readouterr().out
    assert "cause: for 20 s server-0 could not keep what was trained (No space left on device), and then" in told
    assert "simulation" not in told


def test_of_a_run_that_did_not_finish_it_says_first_how_it_ended(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(here, *trained(slow=0.021), exit_code=70, reason="worker-1 crashed 4 times", finished=False)
    doctor("one")
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("run one ended with exit code 70: worker-1 crashed 4 times. It has no snapshot yet")
    assert told[-1] == "run one: nothing else is wrong with it, as far as its figures go."
    run.write_facts(exit_code=None)  # its launcher was killed
    doctor("one", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert "If `paceline run` has ended, resume the run with: paceline run runs/one/config.yaml" in found["ended"]


def test_a_run_too_short_to_be_judged_is_not_called_sound(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(here, plain(status(0.2, 4, slow=0.1)), exit_code=0)
    doctor("one")
    told = capsys.readouterr().out
    assert told == "run one had no worker of 5 steps or more, too few to judge its speed by.\n"

"""`paceline doctor` of runs in all states: trained, training, damaged, empty, of an older release, and not there; what it
prints, and how it ends."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.doctor import doctor
from paceline.core.errors import DataError
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status import predictions
from paceline.launch.status.chief_status import plain
from paceline.launch.status.explained import explain_run
from paceline.settings.load_settings import write_yaml
from tests.launch.status.test_evidence import CONFIG, status
from tests.support.chief import Chief


def folder(place: Path, *lines: Any, **facts: Any) -> RunFolder:
    found = RunFolder(place / "runs" / "one")
    found.path.mkdir(parents=True)
    write_yaml(CONFIG, found.config)
    found.write_facts(**facts)
    found.metrics.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return found


def trained(slow: float = 0.1, **more: Any) -> list[dict[str, Any]]:
    return [plain(status(at, 10 * at, slow=slow, epoch=at / 10, examples=100 * at)) | more for at in range(1, 31)]


def test_a_run_that_has_ended_is_explained_from_its_folder(tmp_path: Path) -> None:
    found = explain_run(folder(tmp_path, *trained(), exit_code=0))
    assert [each.cause for each in found.findings] == ["slow_worker"]
    assert (found.is_training, found.examples, found.epochs, found.notes) == (False, 1000, 3.0, [])
    assert sum(found.time.values()) == pytest.approx(1, abs=0.001)


def test_a_run_that_trains_is_explained_by_its_last_seconds(tmp_path: Path) -> None:
    running = folder(tmp_path, *trained(slow=0.02), exit_code=None, chief="here:1")
    (running.path / "token").write_text("secret")
    now = status(40, 400, slow=0.1)
    found = explain_run(running, lambda *_: Chief(now))
    assert found.is_training
    assert [each.cause for each in found.findings] == ["slow_worker"]


def test_a_run_that_has_just_begun_is_not_judged(tmp_path: Path) -> None:
    running = folder(tmp_path, exit_code=None, chief="here:1")
    (running.path / "token").write_text("secret")
    found = explain_run(running, lambda *_: Chief(status(2.4, 120, slow=0.1)))
    assert not found.findings
    assert found.unjudged == "has trained for 2.4 s: too short a time to say what holds it up; ask again in a moment"


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = trained()
    found = explain_run(folder(tmp_path, *lines[:20], '{"phase": 3\n', "[]\n", *lines[20:], '{"cut', exit_code=0))
    assert [each.cause for each in found.findings] == ["slow_worker"]
    assert found.notes == [f"2 damaged lines of {tmp_path}/runs/one/metrics.jsonl are left out."]


def test_a_folder_whose_figures_are_all_damaged_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics.jsonl is damaged: none of its 2 lines is a status .* paceline audit"):
        explain_run(folder(tmp_path, "nonsense\n", "{}\n", exit_code=0))


@pytest.mark.parametrize(("has_file", "word"), [(True, "empty"), (False, "not there")])
def test_a_run_that_has_not_trained_says_so(tmp_path: Path, has_file: bool, word: str) -> None:
    found = folder(tmp_path, exit_code=1)
    if not has_file:
        found.metrics.unlink()
    with pytest.raises(DataError, match=rf"Run 'one' has no figures yet .* is {word}\): it has not trained. Train it"):
        explain_run(found)


def test_a_run_of_an_older_release_is_judged_by_what_it_says(tmp_path: Path) -> None:
    lines = trained()
    for line in lines:
        for worker in line["workers"]:
            worker["figures"] = {"wait_seconds": 3.0, "loss": 0.1}
            del worker["incarnation"]
        for server in line["servers"]:
            del server["figures"]
    found = explain_run(folder(tmp_path, *lines, exit_code=0))
    assert (found.findings, found.time) == ([], {})
    assert "does not say where its time went: an older release has trained it" in found.notes[0]


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


def test_without_the_package_that_simulates_it_says_which_one_that_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(predictions, "installed_points", lambda group: ())
    folder(here, *trained(), exit_code=0)
    doctor("one")
    doctor("one", as_json=True)
    told = " ".join(capsys.readouterr().out.split())
    assert "By simulation" not in told
    assert told.count("pip install paceline-studies") == 2


def test_a_package_that_simulates_and_can_not_be_loaded_is_named_and_the_rest_is_there(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("simulated", "no_such_module_at_all:predict", predictions.GROUP)
    monkeypatch.setattr(predictions, "installed_points", lambda group: (point,))
    folder(here, *trained(), exit_code=0)
    doctor("one")
    told = " ".join(capsys.readouterr().out.split())
    assert "cause: 77% of the 3 other workers' time went into waiting" in told
    assert "the package no_such_module_at_all, which can't be loaded (ModuleNotFoundError: No module named" in told
    assert told.endswith("pip install --upgrade no_such_module_at_all")


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


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [("two", 64, "There is no run 'two' in"), ("one", 65, "it has not trained. Train it, or look into")],
)
def test_a_run_that_is_not_there_or_without_figures_ends_it_with_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, code: int, told: str
) -> None:
    folder(here, exit_code=1)
    with pytest.raises(SystemExit) as end:
        doctor(name)
    assert end.value.code == code
    assert told in " ".join(capsys.readouterr().err.split())


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

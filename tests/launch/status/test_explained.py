"""`paceline doctor` of runs in all states: trained, training, damaged, empty, of an older release, and not there."""

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import DataError, UsageError
from paceline.launch.folder.run_folder import RunFolder, find_run
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


def test_of_a_run_in_which_nothing_is_wrong_nothing_is_said(tmp_path: Path) -> None:
    assert not explain_run(folder(tmp_path, *trained(slow=0.021), exit_code=0)).findings


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


def test_a_run_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    folder(tmp_path, exit_code=0)
    with pytest.raises(UsageError, match=r"There is no run 'two' in .*Newest ones: one"):
        find_run("two", tmp_path / "runs")

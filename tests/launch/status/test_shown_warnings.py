"""Where warnings are shown: as they come, in the status, in the records, and at the end of a run."""

import json
from pathlib import Path

import pytest

from paceline.cli.run import summary
from paceline.core.chief.warnings import RunWarning
from paceline.core.settings.config import Config
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status import run_status as status
from paceline.launch.status.chief_status import News, warnings
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.supervise.run_history import Records
from paceline.results.result import Result
from paceline.v1 import run_service_pb2 as pb
from tests.support.chief import Chief, begun, console, followed

ROSE = RunWarning("loss_above_start", "the loss rose", "optimizer.lr=0.01", ["optimizer.lr=0.01"], 1.0)
PASSED = RunWarning("not_finite", "no gradient", "optimizer.lr=0.01", [], 0.1, passed=True)
LINE = "warning: the loss rose. Try optimizer.lr=0.01."
FACTS = [
    {
        "kind": each.kind,
        "said": each.said,
        "advice": each.advice,
        "settings": each.settings,
        "epoch": each.epoch,
        "passed": each.passed,
    }
    for each in (PASSED, ROSE)
]


def reply(*found: RunWarning, phase: str = "training", version: int = 1) -> pb.StatusReply:
    messages = [
        pb.RunWarning(
            kind=each.kind,
            said=each.said,
            advice=each.advice,
            settings=each.settings,
            epoch=each.epoch,
            passed=each.passed,
        )
        for each in found
    ]
    return pb.StatusReply(phase=phase, version=version, warnings=messages)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return begun(tmp_path)


def test_warnings_come_over_the_wire_as_they_were() -> None:
    assert warnings(reply(PASSED, ROSE)) == [PASSED, ROSE]


def test_each_warning_is_news_once() -> None:
    news = News()
    assert news.of([ROSE]) == [LINE]
    assert news.of([ROSE]) == []
    assert news.of([ROSE, PASSED]) == ["warning: no gradient. Try optimizer.lr=0.01."]


def test_the_status_shows_what_has_not_passed(folder: RunFolder) -> None:
    screen, text = console()
    status.show_status(folder, screen, as_json=False, connect=lambda *_: Chief(reply(PASSED, ROSE)))  # type: ignore[arg-type, return-value]
    assert LINE in text.getvalue()
    assert "no gradient" not in text.getvalue()


def test_the_status_as_json_has_all_of_them(folder: RunFolder) -> None:
    screen, text = console()
    status.show_status(folder, screen, as_json=True, connect=lambda *_: Chief(reply(PASSED, ROSE)))  # type: ignore[arg-type, return-value]
    assert json.loads(text.getvalue())["warnings"] == FACTS


def test_watching_says_each_once_when_it_comes(folder: RunFolder) -> None:
    screen, text = console()
    answers = [reply(), reply(ROSE, version=2), reply(ROSE, version=3), reply(phase="finished")]
    status.watch(folder, screen, as_json=False, connect=lambda *_: Chief(*answers), every=0.0)  # type: ignore[arg-type, return-value]
    assert text.getvalue().count(LINE) == 1


def test_a_finished_runs_status_and_result_still_tell_them(folder: RunFolder) -> None:
    folder.write_facts(finished=True, exit_code=0, accuracy=0.1, seconds=3.0, warnings=FACTS)
    screen, text = console()
    status.show_status(folder, screen, as_json=False)
    assert LINE in text.getvalue()
    assert Result(folder.path).warnings == [PASSED, ROSE]


def test_the_end_of_a_run_repeats_what_stands_and_proposes_what_to_try(folder: RunFolder) -> None:
    outcome = Outcome(0, 0.1, 2.0, examples=100, version=7, metrics={"test_accuracy": 0.1}, warnings=[PASSED, ROSE])
    lines = summary(Config(run="one"), folder, outcome)
    assert lines[-4] == LINE
    assert lines[-3].startswith("Next, try optimizer.lr=0.01: paceline run ")
    assert lines[-1] == "test accuracy 0.1000"


def test_a_warning_is_taken_down_when_nothing_else_has_changed(tmp_path: Path) -> None:
    place = RunFolder(tmp_path)
    records = Records(place, OwnRecords(place, print), Config())
    for found in ((), (), (ROSE,)):
        records.note(reply(*found), 1.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [len(line["warnings"]) for line in lines] == [0, 1]


def test_on_kubernetes_each_is_said_when_it_comes_and_before_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = reply(), reply(ROSE, version=2), reply(ROSE, PASSED, version=3, phase="finished")

    said, result = followed(monkeypatch, *replies)

    assert said.count(LINE) == 1
    assert result == [LINE, "test score unknown: the run was not scored"]

"""Where warnings are shown: as they come, in the status, in the records, and at the end of a run; what its status says then."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from paceline.cli.run import summary
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ServersGone
from paceline.core.settings.config import Config
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.status.chief_status import News, warnings
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.supervise.run_history import Records
from paceline.results.result import Result
from paceline.v1 import run_service_pb2 as pb
from tests.support.chief import begun, followed, shown, watched

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
            problem=each.said,
            advice=each.advice,
            settings=each.settings,
            epoch=each.epoch,
            passed=each.passed,
        )
        for each in found
    ]
    return pb.StatusReply(phase=f"RUN_PHASE_{phase.upper()}", version=version, warnings=messages)


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
    text = shown(folder, reply(PASSED, ROSE))
    assert LINE in text
    assert "no gradient" not in text


def test_the_status_as_json_has_all_of_them(folder: RunFolder) -> None:
    assert json.loads(shown(folder, reply(PASSED, ROSE), as_json=True))["warnings"] == FACTS


def test_the_status_shows_a_worker_that_was_given_up_while_the_others_train(folder: RunFolder) -> None:
    lost = RunWarning("gave_up worker-1", "worker-1 could not go on", "its log", [], 0.5)
    folder.write_facts(warnings=[asdict(lost)])

    assert [line in shown(folder, reply(ROSE)) for line in (str(lost), LINE)] == [True, True]
    kinds = [each["kind"] for each in json.loads(shown(folder, reply(ROSE), as_json=True))["warnings"]]
    assert kinds == ["gave_up worker-1", "loss_above_start"]


def test_watching_says_each_once_when_it_comes(folder: RunFolder) -> None:
    answers = [reply(), reply(ROSE, version=2), reply(ROSE, version=3), reply(phase="finished")]
    assert watched(folder, *answers).count(LINE) == 1


def test_a_finished_runs_status_and_result_still_tell_them(folder: RunFolder) -> None:
    folder.write_facts(finished=True, exit_code=0, accuracy=0.1, seconds=3.0, warnings=FACTS)
    assert LINE in shown(folder)
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


@pytest.mark.parametrize(
    ("servers", "has_snapshot", "said"),
    [
        (2, True, "It goes on from its last snapshot with: paceline run "),
        (2, False, "It has no snapshot yet, and starts from the beginning, with: paceline run "),
        (0, False, "Without servers nobody keeps the models: start it over with --fresh."),
    ],
)
def test_both_say_the_same_of_how_to_go_on(tmp_path: Path, servers: int, has_snapshot: bool, said: str) -> None:
    folder, config = open_run(Config.model_validate({"run": "one", "servers": servers}), runs=tmp_path)
    if has_snapshot:
        folder.server(0).mkdir()
        (folder.server(0) / "snapshot-3.json").write_text("{}")
    folder.write_facts(exit_code=130, reason="stopped on request", finished=False)

    at_the_end = summary(config, folder, Outcome(130, reason="stopped on request"))[-1]

    assert said in at_the_end
    assert at_the_end.partition("/logs. ")[2] in shown(folder)


def test_a_run_that_is_driven_and_does_not_answer_is_not_called_ended(tmp_path: Path) -> None:
    folder, _ = open_run(Config.model_validate({"run": "one"}), runs=tmp_path)
    folder.write_facts(exit_code=None, launcher=4711)

    with pytest.raises(ServersGone, match=r"does not answer\. If `paceline run` has ended, resume the run with"):
        shown(folder)
    with (
        folder.locked(),
        pytest.raises(ServersGone, match=r"\(not started yet\) .* since process 4711 drives the run; ask"),
    ):
        shown(folder)

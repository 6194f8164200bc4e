"""What a run tells its callbacks, and that none of them can hurt it: slow, hanging or failing."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.callback import LEFT_OUT, End, RunBegin, RunEnd, Status
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, Options
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.settings import loggers
from paceline.launch.settings.loggers import check_callbacks
from paceline.launch.supervise import listener
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.supervise.run_history import PACE, Records
from paceline.rpc.setting_values import policy_message
from paceline.v1 import run_service_pb2 as pb
from tests.support.processes import eventually

ROSE = pb.RunWarning(kind="loss_above_start", problem="the loss is 9", advice="optimizer.lr=0.01", epoch=1.0)


class Noted(paceline.Callback):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def begun(self, run: RunBegin) -> None:
        self.heard.append(("begun", run))

    def status(self, status: Status) -> None:
        self.heard.append(("status", status))

    def scored(self, score: Score) -> None:
        self.heard.append(("scored", score))

    def warned(self, warning: RunWarning) -> None:
        self.heard.append(("warned", warning))

    def ended(self, end: RunEnd) -> None:
        self.heard.append(("ended", end))

    def of(self, method: str) -> list[Any]:
        return [value for name, value in self.heard if name == method]


@pytest.fixture(autouse=True)
def _no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes time to load, and has its own tests."""
    monkeypatch.setattr(loggers, "is_installed", lambda name: False)


@pytest.fixture
def place(tmp_path: Path) -> RunFolder:
    return open_run(Config(run="one", optimizer=Options(name="sgd", lr=0.5)), runs=tmp_path)[0]


def status(version: int, scores: int = 0, phase: str = "training", **figures: float) -> pb.StatusReply:
    workers = [
        pb.WorkerStatus(worker=f"worker-{rank}", clock=version, member=True, figures=figures) for rank in range(2)
    ]
    found = [pb.Score(epoch=n, versions=[10 * n], metrics={"test_accuracy": n / 10}) for n in range(scores)]
    policy = policy_message({"name": "ssp", "bound": 3})
    return pb.StatusReply(
        phase=f"RUN_PHASE_{phase.upper()}", version=version, workers=workers, scores=found, policy=policy
    )


def play(
    place: RunFolder,
    *callbacks: paceline.Callback,
    statuses: list[pb.StatusReply],
    hurry: Callable[[], bool] = lambda: False,
) -> tuple[Outcome, list[str]]:
    """A run that gets these; its outcome, and what is said at its end."""
    said: list[str] = []
    outcome = Outcome(0, version=3, reason="done", metrics={"test_accuracy": 0.5})
    records = Records(place, OwnRecords(place, print), place.settings(), callbacks)
    records.begin(place.settings())
    for each in statuses:
        records.note(each, 100.0)
    records.end(outcome, hurry, said.append)
    return outcome, said


def test_a_callback_hears_the_run_in_order_with_its_settings(place: RunFolder) -> None:
    noted = Noted()
    statuses = [status(1), status(1), status(2, scores=1, loss=0.5, lr=0.1, staleness=2.0)]
    play(place, noted, statuses=statuses)

    assert [name for name, _ in noted.heard] == ["begun", "status", "status", "scored", "ended"]
    (begun,), (end,) = noted.of("begun"), noted.of("ended")
    assert (begun.name, begun.folder, begun.is_resumed) == ("one", place.path, False)
    assert (begun.settings["optimizer.lr"], begun.settings["policy.name"]) == (0.5, "auto")
    curves = {"loss": 0.5, "learning_rate": 0.1, "staleness": 2.0, "examples_per_second": 100.0, "epoch": 0.0}
    assert noted.of("status")[1].curves == {f"run/{name}": value for name, value in curves.items()}
    assert noted.of("status")[1].policy == "ssp"
    assert (end.how, end.version, end.metrics, end.model) == (End.FINISHED, 3, {"test_accuracy": 0.5}, None)


def test_a_long_run_writes_its_news_at_once_and_the_rest_at_a_pace(place: RunFolder) -> None:
    now = [0.0]
    noted = Noted()
    records = Records(place, OwnRecords(place, print), place.settings(), [noted], lambda: now[0])
    records.begin(place.settings())
    for version in range(1000):
        now[0] += 0.5
        records.note(status(version, scores=100 + version // 100), 100.0)
    records.note(status(1000, scores=109, phase="stopping"), 100.0)
    records.note(status(1001, scores=109, phase="stopping"), 100.0)
    records.end(Outcome(0), lambda: False, print)
    texts = place.metrics.read_text().splitlines()
    lines = [json.loads(line) for line in texts]

    assert place.metrics.stat().st_size < 500 * PACE + 11 * max(map(len, texts))
    assert 100 < len(lines) < 900
    assert [line["version"] for line in lines if line["version"] % 100 == 0] == [*range(0, 1001, 100)]
    assert (lines[-1]["phase"], lines[-1]["version"]) == ("stopping", 1001)
    assert len(noted.of("status")) > len(lines)


def test_logged_values_stand_apart_from_a_workers_figures(place: RunFolder) -> None:
    noted = Noted()
    play(place, noted, statuses=[status(1, **{"loss": 0.5, "log.grad_norm": 2.0})])

    (heard,) = noted.of("status")
    assert heard.workers[1].figures == {"loss": 0.5}
    assert heard.workers[1].logged == {"grad_norm": 2.0}
    assert heard.workers[1].curves == {"loss": 0.5, "log/grad_norm": 2.0}
    assert heard.curves["log/grad_norm"] == 2.0


def test_what_is_logged_anew_is_news_though_no_push_has_come(place: RunFolder) -> None:
    noted = Noted()
    play(place, noted, statuses=[status(1, **{"log.a": 1.0}), status(1, **{"log.a": 2.0}), status(1, **{"log.a": 2.0})])
    assert [heard.workers[0].logged["a"] for heard in noted.of("status")] == [1.0, 2.0]


def test_names_that_a_run_does_not_take_are_warned_of(place: RunFolder) -> None:
    outcome, said = play(place, statuses=[status(1), status(2, **{LEFT_OUT: 3.0}), status(3, **{LEFT_OUT: 4.0})])
    (warning,) = outcome.warnings
    told = "worker-0: paceline.log got 3 names or more beyond those that a run takes, which are not kept"
    assert (warning.said, said) == (told, [str(warning)])


def test_a_warning_of_the_run_is_heard_once(place: RunFolder) -> None:
    noted = Noted()
    plain, warned = status(1), status(2)
    warned.warnings.append(ROSE)
    later = status(3)
    later.warnings.append(ROSE)
    play(place, noted, statuses=[plain, warned, later])
    assert [heard.said for heard in noted.of("warned")] == ["the loss is 9"]


def test_a_run_that_is_resumed_does_not_repeat_its_scores_and_warnings(place: RunFolder) -> None:
    first, second = Noted(), Noted()
    before, after = status(2, scores=2), status(3, scores=3)
    before.warnings.append(ROSE)
    after.warnings.append(ROSE)
    play(place, first, statuses=[before])
    place.write_facts(finished=False)
    play(place, second, statuses=[after])

    assert [heard.epoch for heard in first.of("scored")] == [0, 1]
    assert [heard.epoch for heard in second.of("scored")] == [2]
    assert second.of("begun")[0].is_resumed
    assert second.of("warned") == []


@pytest.mark.parametrize(("code", "how"), [(0, End.FINISHED), (130, End.STOPPED), (143, End.STOPPED), (65, End.FAILED)])
def test_the_end_says_how_it_came(code: int, how: End) -> None:
    assert Outcome(code).how is how


class Failing(Noted):
    def status(self, status: Status) -> None:
        super().status(status)
        raise KeyError("length")


def test_a_callback_that_fails_is_said_once_and_hears_the_rest(place: RunFolder) -> None:
    failing, other = Failing(), Noted()
    outcome, said = play(place, failing, other, statuses=[status(1), status(2), status(3, scores=1)])

    line = Path(__file__).read_text().splitlines().index('        raise KeyError("length")') + 1
    (warning,) = outcome.warnings
    assert said == [str(warning)]
    assert f"Failing failed in status(): KeyError: 'length' ({__file__}, line {line})" in warning.said
    assert [name for name, _ in failing.heard] == ["begun", "status", "status", "status", "scored", "ended"]
    assert failing.heard[3:] == other.heard[3:]


def test_what_a_callback_that_can_not_begin_would_hear_is_not_told_to_it(place: RunFolder) -> None:
    class Unwilling(Noted):
        def begun(self, run: RunBegin) -> None:
            raise SystemExit("no server")

    unwilling = Unwilling()
    outcome, _ = play(place, unwilling, statuses=[status(1), status(2)])
    assert unwilling.heard == []
    assert "failed in begun(): SystemExit: no server" in outcome.warnings[0].said


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Set where what hangs may go on."""
    event = threading.Event()
    yield event
    event.set()


def hanging(held: threading.Event, method: str) -> Noted:
    """Hangs in that method."""
    noted = Noted()

    def hang(value: Any) -> None:
        held.wait(100)
        noted.heard.append((method, value))

    setattr(noted, method, hang)
    return noted


def threads_of_callbacks() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("callback ")]


def test_a_callback_that_hangs_does_not_hold_the_run_and_is_said(
    place: RunFolder, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PATIENCE", 0.2)

    def only_one_is_left() -> bool:
        """No hurry, but the run's end waits here: the time need not suffice for the other callback."""
        eventually(lambda: len(threads_of_callbacks()) == 1, "the end of the other")
        return False

    outcome, said = play(place, hanging(held, "ended"), other := Noted(), statuses=[status(1)], hurry=only_one_is_left)

    assert other.of("ended")
    (warning,) = outcome.warnings
    assert said == [str(warning)]
    assert re.search(r"the callback Noted did not end within \d+ s of the run's end", warning.said)


def test_whoever_is_in_a_hurry_does_not_wait_for_callbacks(place: RunFolder, held: threading.Event) -> None:
    outcome, _ = play(place, hanging(held, "begun"), statuses=[], hurry=lambda: True)
    assert "did not end" in outcome.warnings[0].said


def test_a_slow_callback_misses_the_oldest_statuses_and_no_scores(place: RunFolder, held: threading.Event) -> None:
    slow = hanging(held, "begun")
    records = Records(place, OwnRecords(place, print), place.settings(), [slow])
    records.begin(place.settings())
    for version in range(listener.WAITING + 3):
        records.note(status(version, scores=min(version, 3)), 1.0)
    held.set()
    records.end(Outcome(0), lambda: False, lambda line: None)

    assert [heard.version for heard in slow.of("status")] == list(range(3, listener.WAITING + 3))
    assert [heard.epoch for heard in slow.of("scored")] == [0, 1, 2]
    assert len(slow.of("ended")) == 1


def test_a_run_that_ended_before_its_servers_were_up_is_told_to_nobody(place: RunFolder) -> None:
    noted = Noted()
    records = Records(place, OwnRecords(place, print), place.settings(), [noted])
    records.end(Outcome(65), lambda: False, lambda line: None)
    assert noted.heard == []


@pytest.mark.parametrize(
    ("callbacks", "text"),
    [
        ([Noted], r"callbacks has the class Noted; give an object of that class: Noted\(\)"),
        ([print], "of type builtin_function_or_method; expected a list of objects that inherit from paceline.Callback"),
        (Noted(), r"callbacks must be a list: \[Noted\(\)\]"),
        (3, "callbacks has 3 of type int"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_callbacks(callbacks)


def test_train_refuses_it_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: Any = [Noted]
    with pytest.raises(ConfigError, match="the class Noted; give an object"):
        paceline.train("digits", callbacks=wrong)
    assert not list(tmp_path.iterdir())


def test_the_function_of_a_callback_may_be_left_out() -> None:
    methods = ("begun", "status", "scored", "warned", "ended")
    assert [getattr(paceline.Callback(), name)(None) for name in methods] == [None] * 5

"""What a run shows fits into 80 columns, and marks the worker that holds the others up."""

import re
from io import StringIO

import pytest
from rich.console import Console

from paceline.base.terminal import WIDTH
from paceline.core.chief.advice import Advice
from paceline.core.explain.cause import Finding
from paceline.launch.status.evidence import Causes
from paceline.launch.status.live_table import (
    LiveTable,
    PlainLines,
    display_on,
    headline,
    picture,
    show_picture,
    spell,
    without_domain,
)
from paceline.v1.run_service_pb2 import Score, StatusReply, WorkerStatus
from paceline.v1.settings_pb2 import Policy
from tests.launch.status import test_evidence as evidence


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can redraw; these tests may run in a dumb one."""
    monkeypatch.setenv("TERM", "xterm")


def worker(number: int, step: float, **more: float) -> WorkerStatus:
    figures = {"loss": 123456.789, "alpha": 0.25, "staleness": 123, "wait_seconds": 1234.5, "step_seconds": step}
    figures |= {"examples_per_second": 1234567.8} | more
    return WorkerStatus(
        worker=f"worker-{number}",
        clock=1234567,
        lead=123,
        phase="WORKER_PHASE_EXCHANGE",
        phase_seconds=98.7,
        member=True,
        figures=figures,
    )


def status(*workers: WorkerStatus) -> StatusReply:
    score = Score(epoch=1, metrics={"validation_accuracy": 0.9612, "validation_f1": 0.8765, "validation_majority": 0.5})
    return StatusReply(
        phase="RUN_PHASE_TRAINING",
        policy=Policy(name="staleness_aware"),
        switching=True,
        version=123456789,
        examples=500_000_000,
        budget=1_000_000_000,
        epoch=123.4,
        seconds=123456.7,
        workers=workers,
        scores=[score],
        queued=["worker-101", "worker-102"],
    )


def shown(found: StatusReply, width: int = WIDTH) -> list[str]:
    """On a terminal with this number of columns."""
    text = StringIO()
    Console(file=text, width=width, force_terminal=True, no_color=True).print(picture(found, 12345.6, width))
    return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.getvalue().splitlines()]


def piped(found: StatusReply) -> list[str]:
    text = StringIO()
    show_picture(Console(file=text), found, 12345.6)
    return text.getvalue().splitlines()


def test_no_line_is_wider_than_80_columns_and_no_row_takes_two() -> None:
    lines = shown(status(*(worker(number, 0.0123456) for number in range(100, 104))))

    assert max(map(len, lines)) <= WIDTH
    for number in range(100, 104):
        assert sum(line.startswith(f"worker-{number} 1,234,567 ") for line in lines) == 1
    assert sum("1,234,567" in line for line in lines) == 4


def test_what_is_waited_for_fits_with_many_workers() -> None:
    names = ", ".join(f"worker-{number}" for number in range(40))
    found = StatusReply(phase="RUN_PHASE_WAITING", missing=[f"24 of 64 workers (ready: {names}; joining: none)"])

    assert max(map(len, shown(found))) <= WIDTH


def test_lines_for_a_file_are_whole() -> None:
    written: list[str] = []

    PlainLines(written.append).show(status(worker(1, 0.01)), 12345.6)

    (line,) = written
    assert "\n" not in line
    assert len(line) > WIDTH


def test_elapsed_and_remaining_are_labelled() -> None:
    line = headline(status(), 100_000.0)

    assert "elapsed 34 h 18 min" in line
    assert "remaining 83 min" in line


@pytest.mark.parametrize(
    ("name", "chosen_by", "shown_name"),
    [
        ("ssp", "", ", ssp (changing),"),
        ("auto", "auto", ", auto (changing),"),
        ("kbuffered", "auto", ", auto: kbuffered (changing),"),
    ],
)
def test_a_policy_that_another_has_chosen_stands_behind_that(name: str, chosen_by: str, shown_name: str) -> None:
    found = status()
    found.policy.name, found.chosen_by = name, chosen_by

    assert shown_name in headline(found, 10.0)


def test_pushes_above_the_norm_cap_have_a_column_once_there_are_any() -> None:
    none, some = (shown(status(worker(0, 0.01), worker(1, 0.01, capped=count)), 160) for count in (0, 1234))

    assert not any("capped" in line for line in none)
    head = next(line for line in some if "capped" in line)
    end = head.index("capped") + len("capped")
    cells = {
        line.split()[0]: line[:end].split()[-1] for line in some if line.startswith("worker-") and "-10" not in line
    }
    assert cells == {"worker-0": "-", "worker-1": "1,234"}


def on(number: int, host: str) -> WorkerStatus:
    """A worker with figures as they are, on that machine."""
    usual = {"staleness": 3, "wait_seconds": 12.5, "examples_per_second": 1234.0, "alpha": 1.0}
    found = worker(number, 0.0123, **usual)
    found.host = host
    found.clock = 12345
    found.lead = 2
    return found


def test_long_names_of_machines_lose_what_all_have_in_common() -> None:
    machines = [on(number, f"gpu-{number}.cluster.example.com") for number in range(3)]

    lines = shown(status(*machines))

    assert max(map(len, lines)) <= WIDTH
    for number in range(3):
        assert sum(line.startswith(f"worker-{number}   gpu-{number}   12,345 ") for line in lines) == 1
    assert any("gpu-1.cluster.example.com" in line for line in piped(status(*machines)))


def test_names_that_do_not_fit_are_told_below_the_table_and_no_figure_is_cut() -> None:
    names = ["compute-node-with-a-long-name-" + letter * 20 for letter in "ab"]
    machines = [on(number, names[number % 2]) for number in range(4)]

    lines = shown(status(*machines))

    assert max(map(len, lines)) <= WIDTH
    assert sum("12,345" in line and "12.3 ms" in line and "12.5 s" in line for line in lines) == 4
    assert f"machine {names[0]}: worker-0, worker-2" in lines
    assert any(names[1] in line and line.startswith("worker-3 ") for line in shown(status(*machines), 160))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a.x.org", "b.x.org"], ["a", "b"]),
        (["a.x.org", "a.y.org"], ["a.x", "a.y"]),
        (["a.x.org"], ["a"]),
        (["10.0.1.5", "10.0.2.5"], ["10.0.1.5", "10.0.2.5"]),
        (["a", "b.x"], ["a", "b.x"]),
        (["fe80::1", "fe80::2"], ["fe80::1", "fe80::2"]),
    ],
)
def test_what_machines_have_in_common_is_left_out_of_names_only(names: list[str], short: list[str]) -> None:
    found = without_domain({f"worker-{number}": name for number, name in enumerate(names)})

    assert [*found.values()] == short


def test_the_straggler_is_marked_with_the_reason() -> None:
    found = status(worker(0, 0.01), worker(1, 0.1, wait_seconds=0.0), worker(2, 0.01))

    lines = shown(found)

    (row,) = (line for line in lines if line.startswith("worker-1 "))
    assert "straggler" in row
    assert "100 ms" in row
    told = " ".join(" ".join(lines).split())
    assert "straggler: worker-1 is 10.0 times slower (100 ms a step, the others 10 ms); the others wait for it" in told


@pytest.mark.parametrize(("seconds", "text"), [(8.21, "8.2 s"), (75, "75 s"), (720, "12 min"), (12000, "3 h 20 min")])
def test_times_are_spelled_for_people(seconds: float, text: str) -> None:
    assert spell(seconds) == text


@pytest.mark.parametrize(("kind", "is_table"), [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_gets_lines(kind: str, is_table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    screen = StringIO()

    with display_on(Console(file=screen, width=WIDTH, force_terminal=True, no_color=True)) as shown:
        shown.show(status(worker(1, 0.01)), 12345.6)

    assert "epoch 123.4" in screen.getvalue()
    assert ("clock" in screen.getvalue()) == is_table


def test_a_worker_whose_calls_keep_failing_has_a_line_that_says_which() -> None:
    failing = worker(1, 0.5)
    failing.outage = "a push to server 0 at a:1 has failed 4 times in 31 s: no answer. Look whether server 0 runs."
    found, line = status(worker(0, 0.5), failing), f"worker-1: {failing.outage}"
    assert line in piped(found)
    assert line in " ".join(map(str.strip, shown(found)))
    assert "worker-0:" not in "".join(shown(found))
    lines: list[str] = []
    PlainLines(lines.append).show(found, 1.0)
    assert lines[1:] == [line]


def test_the_live_table_has_a_cause_as_long_as_it_holds() -> None:
    screen, drawn = StringIO(), []
    (slow,) = Causes(evidence.CONFIG).now(found := evidence.status(10, 100, slow=0.1))

    with LiveTable(Console(file=screen, width=WIDTH, force_terminal=True, no_color=True)) as table:
        for causes in ([], [slow], [slow], []):
            screen.truncate(screen.seek(0))
            table.show(found, 100.0, causes)
            drawn.append(" ".join(screen.getvalue().split()))

    said = "cause: 77% of the 3 other workers' time went into waiting for worker-3, whose steps take 5.0 times as long"
    assert ["cause" in frame for frame in drawn] == [False, True, True, False]
    assert all(said in frame and "Now: paceline set one policy=asp" in frame for frame in drawn[1:3])


def test_the_straggler_has_no_line_of_its_own_where_a_cause_blames_it() -> None:
    found = status(worker(0, 0.01), worker(1, 0.1, wait_seconds=0.0), worker(2, 0.01))
    blamed = Finding(0.5, "nobody waits for worker-1", Advice("asp"), workers=("worker-1",))
    full = Finding(1.0, "server-0 can't keep what is trained", Advice("to make room"))

    for causes, has_line in (((blamed,), False), ((full,), True), ((full, blamed), False)):
        text = StringIO()
        show_picture(Console(file=text, width=WIDTH, force_terminal=True, no_color=True), found, 1.0, causes)
        assert ("straggler: worker-1" in text.getvalue()) is has_line
        assert text.getvalue().count("cause: ") == len(causes)
        assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in text.getvalue().splitlines()) <= WIDTH

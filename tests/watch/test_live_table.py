"""What a run shows fits into 80 columns, and marks the worker that holds the others up."""

from io import StringIO

import pytest
from rich.console import Console

from paceline.v1.run_service_pb2 import Score, StatusReply, WorkerStatus
from paceline.watch.live_table import WIDTH, PlainLines, headline, picture, spell


def worker(number: int, step: float, **more: float) -> WorkerStatus:
    figures = {"loss": 123456.789, "alpha": 0.25, "staleness": 123, "wait_seconds": 1234.5, "step_seconds": step}
    figures |= {"examples_per_second": 1234567.8} | more
    return WorkerStatus(
        worker=f"worker-{number}",
        clock=1234567,
        lead=123,
        phase="exchange",
        phase_seconds=98.7,
        member=True,
        figures=figures,
    )


def status(*workers: WorkerStatus) -> StatusReply:
    score = Score(epoch=1, metrics={"validation_accuracy": 0.9612, "validation_f1": 0.8765, "validation_majority": 0.5})
    return StatusReply(
        phase="training",
        policy='{"name": "staleness_aware"}',
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


def shown(found: StatusReply) -> list[str]:
    text = StringIO()
    Console(file=text, width=WIDTH).print(picture(found, 12345.6))
    return text.getvalue().splitlines()


def test_no_line_is_wider_than_80_columns_and_no_row_takes_two() -> None:
    lines = shown(status(*(worker(number, 0.0123456) for number in range(100, 104))))

    assert max(map(len, lines)) <= WIDTH
    for number in range(100, 104):
        assert sum(line.startswith(f"worker-{number} 1,234,567 ") for line in lines) == 1
    assert sum("1,234,567" in line for line in lines) == 4


def test_what_is_waited_for_fits_with_many_workers() -> None:
    names = ", ".join(f"worker-{number}" for number in range(40))
    found = StatusReply(phase="waiting", missing=[f"24 of 64 workers (ready: {names}; joining: none)"])

    assert max(map(len, headline(found, 0.0).splitlines())) <= WIDTH


def test_plain_lines_fit_too() -> None:
    written: list[str] = []

    PlainLines(written.append).show(status(worker(1, 0.01)), 12345.6)

    assert max(len(line) for text in written for line in text.splitlines()) <= WIDTH


def test_elapsed_and_remaining_are_labelled() -> None:
    line = headline(status(), 100_000.0)

    assert "elapsed 34 h 18 min" in line
    assert "remaining 83 min" in line


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

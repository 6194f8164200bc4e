"""What the sharder shows while it works: bars, plain lines and metrics."""

import io
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from paceline.core.errors import ConfigError
from paceline.data.progress import Progress
from paceline.sharder.progress_bars import PlainLines, SharderMetrics, progress_of
from tests.support.ports import own_port


class Told:
    """Plain lines in virtual time, and what they say."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lines = list[str]()
        self.progress: Progress = PlainLines(self.lines.append, lambda: self.now)

    def advance(self, count: int, seconds: float) -> None:
        self.now += seconds
        self.progress.advance(count)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setenv("TERM", "xterm")
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)


@pytest.fixture
def pipe() -> Console:
    return Console(file=io.StringIO(), width=40)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield listening.getsockname()[1]


def metrics_at(port: int) -> list[str]:
    """The sharder's own; what every process has comes besides."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    assert any(line.startswith('process_resident_memory_bytes{process="sharder"}') for line in lines)
    return [line for line in lines if line.startswith("paceline_shard")]


def test_plain_lines_tell_rate_and_remaining_time_every_ten_seconds(told: Told) -> None:
    told.progress.stage("writing", 1_200_000)
    for _ in range(24):
        told.advance(50_000, 1.0)
    assert told.lines == [
        "writing: 1,200,000 examples",
        "writing: 500,000 of 1,200,000 examples, 50,000/s, 14 s left",
        "writing: 1,000,000 of 1,200,000 examples, 50,000/s, 4 s left",
        "writing: 1,200,000 of 1,200,000 examples, 50,000/s, took 24 s",
    ]


def test_each_stage_is_timed_from_its_own_start(told: Told) -> None:
    told.progress.stage("checking", 10)
    told.advance(10, 5.0)
    told.now += 1000.0
    told.progress.stage("writing", 100)
    told.advance(20, 4.0)
    told.advance(80, 4.0)
    assert told.lines[1:] == [
        "checking: 10 of 10 examples, 2/s, took 5 s",
        "writing: 100 examples",
        "writing: 100 of 100 examples, 12/s, took 8 s",
    ]


@pytest.mark.parametrize(("total", "left"), [(1_119, "119 s"), (1_120, "2 min"), (8_140, "119 min"), (13_600, "3.5 h")])
def test_long_times_are_told_in_minutes_and_hours(told: Told, total: int, left: str) -> None:
    told.progress.stage("writing", total)
    told.advance(1_000, 1_000.0)
    assert told.lines[-1].endswith(f"{left} left")


def test_work_that_took_no_time_at_all_has_no_rate(told: Told) -> None:
    told.progress.stage("writing", 10)
    told.advance(10, 0.0)
    assert told.lines[-1] == "writing: 10 of 10 examples, took 0 s"


def test_a_stage_in_which_nothing_is_done_yet_has_no_remaining_time(told: Told) -> None:
    told.progress.stage("clustering", 10)
    told.advance(0, 30.0)
    assert told.lines[-1] == "clustering: 0 of 10 examples"


def test_more_examples_than_were_announced_have_no_remaining_time_either(told: Told) -> None:
    told.progress.stage("writing", 10)
    told.advance(8, 1.0)
    told.advance(8, 1.0)
    told.advance(8, 1.0)
    told.advance(8, 10.0)
    assert told.lines[1:] == ["writing: 16 of 10 examples, 8/s, took 2 s", "writing: 32 of 10 examples, 2/s, took 13 s"]


def test_a_stage_without_examples_is_told_once(told: Told) -> None:
    told.progress.stage("writing", 0)
    told.advance(0, 1.0)
    assert told.lines == ["writing: 0 examples"]


def test_what_is_no_terminal_gets_plain_lines_that_are_never_wrapped(pipe: Console) -> None:
    with progress_of(pipe) as progress:
        progress.stage("checking", 1_797)
        progress.say(f"[bold] {'x' * 60}")
    assert shown(pipe) == f"checking: 1,797 examples\n[bold] {'x' * 60}\n"


def test_a_terminal_that_can_not_redraw_gets_plain_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True)
    with progress_of(console) as progress:
        progress.stage("checking", 1_797)
    assert shown(console) == "checking: 1,797 examples\n"


def test_a_terminal_gets_a_bar_for_each_stage_with_rate_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = [100.0]
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80, get_time=lambda: clock[0])
    with progress_of(console) as progress:
        progress.stage("checking", 2_000)
        clock[0] += 2.0
        progress.advance(2_000)
        clock[0] += 100.0
        progress.stage("writing", 1_200_000)
        clock[0] += 10.0
        progress.advance(340_000)
        progress.say("[shard-0] is next")
    above, last = shown(console).rsplit("checking", 1)
    assert "[shard-0] is next" in above
    checking, writing = last.splitlines()[:2]
    assert re.search(r" 2,000 of 2,000 +1,000/s +0:00:02", checking)
    assert re.search(r"^writing .* 340,000 of 1,200,000 +34,000/s +0:00:26", writing)


def test_a_bar_stands_more_and_fewer_examples_than_announced_and_none(terminal: Console) -> None:
    with progress_of(terminal) as progress:
        progress.stage("checking", 10)
        progress.advance(4)
        progress.stage("clustering", 10)
        progress.advance(8)
        progress.advance(8)
        progress.stage("writing", 0)
        progress.advance(0)
    for text in ("4 of 10", "16 of 10", "0 of 0"):
        assert text in shown(terminal)


def test_the_cursor_is_given_back_when_the_work_fails(terminal: Console) -> None:
    def work() -> None:
        with progress_of(terminal) as progress:
            progress.stage("writing", 10)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert shown(terminal).endswith("\x1b[?25h")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"paceline_{name}", labels)


def test_metrics_tell_the_share_of_each_stage_and_the_examples_of_each_shard() -> None:
    registry = CollectorRegistry()
    metrics = SharderMetrics(registry)
    metrics.stage("checking", 10)
    assert value(registry, "sharder_progress_ratio", stage="checking") == 0
    metrics.advance(10)
    metrics.stage("writing", 8)
    metrics.advance(2)
    metrics.shard(1, 7)
    assert value(registry, "sharder_progress_ratio", stage="checking") == 1
    assert value(registry, "sharder_progress_ratio", stage="writing") == 0.25
    assert value(registry, "sharder_examples_total", stage="writing") == 2
    assert value(registry, "shard_examples", shard="1") == 7


def test_the_share_of_a_stage_is_never_above_one_and_one_where_there_is_nothing_to_do() -> None:
    registry = CollectorRegistry()
    metrics = SharderMetrics(registry)
    metrics.stage("checking", 10)
    metrics.advance(16)
    metrics.stage("writing", 0)
    assert value(registry, "sharder_progress_ratio", stage="checking") == 1
    assert value(registry, "sharder_progress_ratio", stage="writing") == 1


def test_metrics_are_on_the_port_while_the_work_goes_on_and_no_longer(pipe: Console) -> None:
    port = own_port()
    with progress_of(pipe, port) as progress:
        progress.stage("writing", 8)
        progress.advance(2)
        progress.shard(0, 5)
        assert metrics_at(port) == [
            'paceline_sharder_progress_ratio{process="sharder",stage="writing"} 0.25',
            'paceline_sharder_examples_total{process="sharder",stage="writing"} 2.0',
            'paceline_shard_examples{process="sharder",shard="0"} 5.0',
        ]
    assert f"Metrics are on port {port}.\n" in shown(pipe)
    with pytest.raises(OSError, match="refused"):
        metrics_at(port)


def test_any_free_port_is_told(pipe: Console) -> None:
    with progress_of(pipe, 0):
        port = int(shown(pipe).split()[-1].rstrip("."))
        assert metrics_at(port) == []


def test_a_metrics_port_that_is_taken_is_told(pipe: Console) -> None:
    with (
        taken_port() as port,
        pytest.raises(ConfigError, match=rf"Can't listen on metrics port {port} of 127.0.0.1: .* Choose another one\."),
        progress_of(pipe, port),
    ):
        pass
    assert shown(pipe) == ""


def test_without_a_port_nothing_is_said_of_metrics(pipe: Console) -> None:
    with progress_of(pipe) as progress:
        assert isinstance(progress, Progress)
    assert shown(pipe) == ""

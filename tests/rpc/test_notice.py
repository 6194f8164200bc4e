"""A notice from a file, a signal or a metadata service, which a server on loopback plays with each cloud's own answers."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.this_machine.signals import Signals
from paceline.rpc import clouds
from paceline.rpc import notice as notices
from paceline.rpc.clouds import look_at
from paceline.rpc.notice import Notice, watch

ROOT = Path(__file__).resolve().parents[2]
Answers = dict[tuple[str, str], tuple[int, str]]
"""Status and text of each method and path; any other path is a 404."""
TOKEN = ("PUT", "/latest/api/token")
ACTION = ("GET", "/latest/meta-data/spot/instance-action")
PREEMPTED = ("GET", "/computeMetadata/v1/instance/preempted")
EVENTS = ("GET", "/metadata/scheduledevents?api-version=2020-07-01")
NAME = ("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text")
HEADERS = {"aws": "X-aws-ec2-metadata-token", "gcp": "Metadata-Flavor", "azure": "Metadata"}
"""Without it no cloud answers."""


@contextmanager
def serving(cloud: str, answers: Answers) -> Iterator[str]:
    """The address of a metadata service that answers so."""

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get(HEADERS[cloud])
            self._answer(*answers.get((self.command, self.path), (404, "")) if wanted else (401, ""))

        def do_PUT(self) -> None:
            wanted = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            self._answer(*answers[self.command, self.path] if wanted else (400, ""))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Nowhere."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def azure_events(*events: dict[str, Any]) -> tuple[int, str]:
    return 200, json.dumps({"DocumentIncarnation": 2, "Events": list(events)})


def azure_event(kind: str, *machines: str, before: str = "Mon, 19 Sep 2016 18:29:47 GMT") -> dict[str, Any]:
    return {
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": list(machines),
        "EventStatus": "Scheduled" if before else "Started",
        "NotBefore": before,
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


AWS_TOKEN: Answers = {TOKEN: (200, "AQAEAL-a-token==")}
AZURE_NAME: Answers = {NAME: (200, "node_3")}


@pytest.mark.parametrize(
    ("cloud", "answers"),
    [
        ("aws", AWS_TOKEN),
        ("gcp", {PREEMPTED: (200, "FALSE")}),
        ("azure", {EVENTS: azure_events()} | AZURE_NAME),
        ("azure", {EVENTS: azure_events(azure_event("Reboot", "node_3"))} | AZURE_NAME),
        ("azure", {EVENTS: azure_events(azure_event("Preempt", "node_31", "node_4"))} | AZURE_NAME),
    ],
)
def test_a_machine_that_stays_has_no_notice(cloud: str, answers: Answers) -> None:
    with serving(cloud, answers) as url:
        assert look_at(cloud, url)() is None


@pytest.mark.parametrize(
    ("cloud", "answers", "deadline"),
    [
        (
            "aws",
            AWS_TOKEN | {ACTION: (200, '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}')},
            datetime(2017, 9, 18, 8, 22, tzinfo=UTC),
        ),
        (
            "azure",
            {EVENTS: azure_events(azure_event("Freeze", "node_3"), azure_event("Preempt", "node_3"))} | AZURE_NAME,
            datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC),
        ),
        ("azure", {EVENTS: azure_events(azure_event("Preempt", "a", "node_3", before=""))} | AZURE_NAME, None),
    ],
)
def test_a_machine_that_its_cloud_takes_back_has_a_notice_with_the_moment(
    cloud: str, answers: Answers, deadline: datetime | None
) -> None:
    with serving(cloud, answers) as url:
        assert look_at(cloud, url)() == Notice(cloud, deadline)


def test_google_cloud_names_no_moment_but_gives_30_seconds() -> None:
    before = datetime.now(UTC)
    with serving("gcp", {PREEMPTED: (200, "TRUE")}) as url:
        notice = look_at("gcp", url)()

    assert notice is not None
    assert notice.deadline is not None
    assert before <= notice.deadline - timedelta(seconds=30) <= datetime.now(UTC)


@pytest.fixture(autouse=True)
def _received(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has got none."""
    monkeypatch.setattr(notices, "_received", [])
    monkeypatch.setattr(notices, "EVERY", 0.01)


def watched(monkeypatch: pytest.MonkeyPatch, named: str) -> tuple[notices.Watch, threading.Event, "SimpleQueue[str]"]:
    """What looks for this notice, what it sets, and what it says."""
    said, noticed = SimpleQueue[str](), threading.Event()
    monkeypatch.setenv("PACELINE_NOTICE", named)
    found = watch(noticed.set, said.put)
    assert found is not None
    return found, noticed, said


@pytest.mark.parametrize("is_there_before", [True, False])
def test_a_file_is_a_notice_whenever_it_comes(
    is_there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "later" / "notice"
    if is_there_before:
        file.parent.mkdir()
        file.touch()
    looks, noticed, said = watched(monkeypatch, str(file))
    with closing(looks):
        file.parent.mkdir(exist_ok=True)
        file.touch()
        assert noticed.wait(60)

    assert notices.received() == Notice(str(file))
    assert said.get() == f"looks for a notice in {file}"
    assert said.get() == f"got a notice from {file}"


@pytest.mark.parametrize("trouble", ["error", "hang", "nobody", "not json"])
def test_a_metadata_service_that_fails_is_said_once_and_asked_again(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no run, and the notice counts once it comes."""
    monkeypatch.setattr(clouds, "_TIMEOUT", 0.2)
    answers: Answers = AWS_TOKEN | {ACTION: (500, "oops") if trouble == "error" else (200, "<html>")}
    with serving("aws", answers) as url, closing(listening()) as silent:
        other = {"hang": f"http://127.0.0.1:{silent.getsockname()[1]}", "nobody": "http://127.0.0.1:1"}
        looks, noticed, said = watched(monkeypatch, f"aws@{other.get(trouble, url)}")
        with closing(looks):
            assert said.get(timeout=60) == "looks for a notice from aws"
            assert said.get(timeout=60).startswith("can't look for a notice, and tries again every 0.01 s (")
            if trouble not in other:
                answers[ACTION] = (200, '{"action": "stop", "time": "2017-09-18T08:22:00Z"}')
                assert said.get(timeout=60) == "can look for a notice again"
                assert said.get(timeout=60) == "got a notice from aws, until 08:22:00 UTC"
                assert noticed.wait(60)


def listening() -> Any:
    """A socket that takes connections and never answers."""
    import socket

    return socket.create_server(("127.0.0.1", 0), backlog=64)


def test_no_variable_looks_for_nothing_and_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_NOTICE", raising=False)
    assert watch(lambda: None, print) is None

    monkeypatch.setenv("PACELINE_NOTICE", "ec2")
    with pytest.raises(ConfigError, match="'ec2'; expected aws, gcp, azure or the path of a file, like /run/notice"):
        watch(lambda: None, print)


def test_a_launcher_takes_a_notice_for_sigterm_and_a_signal_after_it_for_no_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_NOTICE", str(tmp_path / "notice"))
    said = SimpleQueue[str]()
    with Signals(said.put) as signals:
        before = signals.exit_code
        (tmp_path / "notice").touch()
        assert said.get(timeout=60).startswith("looks")
        assert said.get(timeout=60).startswith("got a notice")
        until(lambda: signals.exit_code is not None)
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: len(signals.seen) == 2)
        first = signals.hurry()
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: len(signals.seen) == 3)

        assert (before, signals.exit_code, first, signals.hurry()) == (None, 143, False, True)


def until(is_so: Callable[[], bool]) -> None:
    looks = threading.Event()
    for _ in range(6000):
        if is_so():
            return
        looks.wait(0.01)
    raise AssertionError("did not happen")


WAITS = """
import sys
import paceline
from paceline.rpc.process import stop_on_signals

assert paceline.notice() is None
stop, seen = stop_on_signals()
print("waits", flush=True)
while not stop.wait(0.0001):
    pass
stop.wait()
sys.stdin.read()
print(paceline.notice().source, {*seen} == {15}, flush=True)
"""


def test_no_burst_of_signals_hangs_a_process() -> None:
    """Handlers take no lock: `threading.Event.set` in one hangs about one process in fifty."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WAITS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
        for _ in range(2000):
            for process in processes:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        assert [process.communicate("", timeout=100)[0] for process in processes] == ["SIGTERM True\n"] * 4
    finally:
        for process in processes:
            process.kill()
            process.communicate()

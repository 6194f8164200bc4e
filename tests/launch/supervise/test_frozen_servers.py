"""Servers that run and don't answer: found after their lease, in virtual time, and replaced by a real run."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import open_run
from paceline.launch.supervise import frozen_servers
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.frozen_servers import ANSWER, FrozenServers, Probe
from paceline.launch.supervise.launcher import run_local
from paceline.launch.this_machine.signals import CTRL_C
from paceline.v1.run_service_pb2 import StatusReply


class Server(Child):
    """A process that always runs, and that answers as the test says."""

    def __init__(self, name: str, role: str = "server", pid: int = 1) -> None:
        super().__init__(name, role, [], None, {})
        self.number = pid
        self.answers = True

    @property
    def pid(self) -> int:
        return self.number

    @property
    def running(self) -> bool:
        return True


class Line(Probe):
    """To one server; an answer takes no time, the lack of one takes ANSWER seconds."""

    def __init__(self, server: Server, stage: "Stage") -> None:
        self._server, self._stage = server, stage
        self.is_closed = False

    def ask(self) -> None:
        self._asked = self._stage.now

    def answer(self) -> bool | None:
        if self._server.answers:
            return True
        return False if self._stage.now - self._asked >= ANSWER else None

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """A launcher that looks ten times a second."""

    def __init__(self, folder: Path, lease: float, *servers: Server) -> None:
        self.now = 0.0
        self.servers = servers
        self.lines: list[Line] = []
        for number, server in enumerate(servers):
            (folder / server.name).write_text(json.dumps({"pid": server.number, "health_port": number + 1}))
        self.frozen = FrozenServers(lease, lambda name: folder / name, self._reach)

    def _reach(self, port: int) -> Line:
        self.lines.append(Line(self.servers[port - 1], self))
        return self.lines[-1]

    def go_on(self, seconds: float) -> list[tuple[str, float]]:
        """Who was found frozen, and when."""
        found, end = [], self.now + seconds
        while self.now < end:
            self.now += 0.1
            found += [(child.name, self.now) for child, _ in self.frozen.look(self.servers, self.now)]
        return found


def test_a_server_that_stops_to_answer_is_found_after_its_lease_and_only_once(tmp_path: Path) -> None:
    server, other = Server("server-0"), Server("server-1", pid=2)
    stage = Stage(tmp_path, 15.0, server, other)
    assert stage.go_on(60) == []

    server.answers = False
    found = stage.go_on(18)

    assert [name for name, _ in found] == ["server-0"]
    assert 75 < found[0][1] < 60 + 15 + 2 * ANSWER


def test_a_server_that_answers_now_and_then_is_left_alone(tmp_path: Path) -> None:
    server = Server("server-0")
    stage = Stage(tmp_path, 15.0, server)

    for _ in range(5):
        server.answers = not server.answers
        assert stage.go_on(12) == []


def test_a_server_that_has_never_answered_is_still_starting(tmp_path: Path) -> None:
    server = Server("server-0")
    server.answers = False

    assert Stage(tmp_path, 15.0, server).go_on(100) == []


def test_the_process_that_comes_after_is_a_new_one(tmp_path: Path) -> None:
    server = Server("server-0")
    stage = Stage(tmp_path, 15.0, server)
    stage.go_on(5)
    server.answers = False
    stage.go_on(12)

    server.number = 9  # started again by somebody else; its report has not been written yet

    assert stage.go_on(100) == []
    assert [line.is_closed for line in stage.lines] == [True]


def test_a_launcher_that_slept_itself_blames_nobody(tmp_path: Path) -> None:
    server = Server("server-0")
    stage = Stage(tmp_path, 15.0, server)
    stage.go_on(5)
    server.answers = False
    stage.go_on(1.5)

    stage.now += 3600
    stage.frozen.look(stage.servers, stage.now)
    server.answers = True

    assert stage.go_on(60) == []


def test_workers_are_not_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 15.0, Server("worker-0", role="worker"))

    stage.go_on(5)

    assert stage.lines == []


def test_a_real_server_that_is_frozen_is_ended_and_replaced_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_servers, "LEAST", 1.0)
    monkeypatch.setattr(frozen_servers, "ANSWER", 0.5)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings: dict[str, Any] = {"policy": {"name": "asp"}, "evaluate_every": 10_000, "lease": 3.0, "heartbeat": 0.5}
    config = Config(task="digits", run="icy", workers=1, servers=2, epochs=100_000, **settings)
    folder, config = open_run(config, runs=tmp_path)
    said: list[str] = []
    seen: list[int] = []
    """Versions at which the server was frozen, and found to be replaced."""

    def act(status: StatusReply, rate: float, causes: object) -> None:
        if status.version > 5 and not seen:
            seen.append(status.version)
            os.kill(folder.facts()["pids"]["server-1"], signal.SIGSTOP)
        if len(seen) == 1 and any("has not answered" in line for line in said):
            seen.append(status.version)
        if len(seen) == 2 and status.version > seen[1] + 5:
            os.kill(os.getpid(), signal.SIGINT)  # that is enough

    outcome = run_local(config, folder.path, said.append, act)

    assert outcome.exit_code == CTRL_C
    told = [line for line in said if "server-1 has not answered for" in line]
    assert len(told) == 1
    assert "so it was ended; starting it again (2 restarts left)" in told[0]

"""How the processes of a run are ended, how long they have, and what is said of those that fail then."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.launch.supervise import children
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.supervise.processes import Processes
from paceline.launch.this_machine.child_environment import child_environment
from tests.support.gone import is_gone
from tests.support.processes import eventually

SAVES = """
import signal, sys, time
from pathlib import Path
def save(*_):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "ALL_GONE", 0.1)


def saving(folder: Path, name: str, role: str) -> Child:
    """A process that ends once it is asked to and `saved` exists."""
    (folder / "saves.py").write_text(SAVES)
    command = [str(folder / "saves.py"), str(folder / "saved")]
    child = Child(name, role, command, folder / f"{name}.log", child_environment(1))
    child.start()
    eventually(lambda: "ready" in (folder / f"{name}.log").read_text() or None, f"{name} is ready")
    return child


def test_a_server_that_writes_its_snapshot_is_waited_for_and_the_user_hears_of_it(tmp_path: Path) -> None:
    server, worker = saving(tmp_path, "server-0", "server"), saving(tmp_path, "worker-0", "worker")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        (tmp_path / "saved").touch()

    end_all([server, worker], say=say)

    assert (server.code, worker.code) == (0, -signal.SIGKILL)
    assert said == ["Waiting for the last snapshot of server-0, 59.9 s at most."]


def test_a_server_that_never_ends_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "SERVERS_GONE", 0.3)
    server = saving(tmp_path, "server-0", "server")
    end_all([server])
    assert server.code == -signal.SIGKILL


def test_what_a_process_runs_tethered_ends_with_it_however_it_ends() -> None:
    inner = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    program = f"""
import subprocess, sys
from paceline.launch.this_machine.end_with_parent import tethered
subprocess.run(tethered(sys.executable, "-c", {inner!r}))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        eventually(lambda: is_gone(child), "the child's end")


class Ending:
    """A process that runs for this number of looks, and then has this exit code."""

    given_up = is_done = False

    def __init__(self, name: str, looks: int, code: int = 0) -> None:
        self.name = name
        self.role = name.split("-")[0]
        self.code = code
        self._looks = looks

    @property
    def running(self) -> bool:
        self._looks -= 1
        return self._looks >= 0

    def poll(self) -> int | None:
        return None if self._looks > 0 else self.code

    def how_it_ended(self) -> str:
        return f"ended with exit code {self.code}"

    def tail(self) -> str:
        return " Error"


def ended(*children: Any, are_scripts: bool) -> list[str]:
    """What is said while these end; there is no time to wait for any."""
    said: list[str] = []
    processes = object.__new__(Processes)
    vars(processes).update(
        _children=list(children), _signals=SimpleNamespace(seen=False), _say=said.append, _printed=[], failed=[]
    )
    processes.let_end(0.0, are_scripts)
    return said


@pytest.mark.parametrize("are_scripts", [False, True])
def test_an_evaluator_that_fails_after_the_end_is_told(are_scripts: bool) -> None:
    assert ended(Ending("worker-0", 0), Ending("evaluator", 0, 3), are_scripts=are_scripts) == [
        "evaluator ended with exit code 3 after the end; its model may be missing. It said: Error"
    ]


def test_scripts_have_the_time_that_they_need_after_their_training() -> None:
    late = Ending("worker-1", 3)

    assert ended(Ending("worker-0", 0), late, are_scripts=True) == [
        "The training is over; the script of worker-1 still runs. Ctrl-C ends it."
    ]
    assert not late.running


def test_a_script_that_fails_after_its_training_is_told() -> None:
    assert ended(Ending("worker-0", 0, 1), Ending("worker-1", 0), are_scripts=True) == [
        "The script of worker-0 failed after its training: it ended with exit code 1. Its last lines: Error"
    ]
    assert ended(Ending("worker-0", 0, 1), are_scripts=False) == []

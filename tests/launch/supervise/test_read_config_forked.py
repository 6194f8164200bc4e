"""The settings of a task's file that imports torch are read by another process than the one that shows the run."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.launch.forks.forker import Forker, Loads
from paceline.launch.supervise.read_config_forked import read_forked
from paceline.launch.this_machine.child_environment import child_environment
from paceline.settings.flags import Flags
from tests.support.gone import is_gone
from tests.support.nights import some
from tests.support.processes import eventually

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux")]
TASK = """
print("while it loads")
import numpy as np
import torch
from paceline.extend import Dataset, Labelled

SETTINGS = {"workers": 2, "servers": 1, "epochs": 2}


def data(path):
    print("in data()")
    labels = np.arange(200) % 2
    return Dataset(train=Labelled(np.eye(2, dtype=np.float32)[labels], labels))


def model():
    print("in model()")
    return torch.nn.Linear(2, 2)
"""
WAITS = """
import torch, subprocess, time
begun = subprocess.Popen(["sleep", "600"])
print("it is", begun.pid)
time.sleep(600)
"""


@pytest.fixture
def begun() -> Iterator[Forker]:
    with closing(Forker(Loads(("json",)), child_environment(1))) as forker:
        yield forker


def run(folder: Path, text: str, *flags: str, **variables: str) -> subprocess.Popen[str]:
    """`paceline run` of a task with this text, as a user's shell starts it."""
    (folder / "own.py").write_text(text)
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "run", "own.py", *flags],
        cwd=folder,
        env=usual | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_flags_win_over_variables_and_what_the_file_prints_is_kept(tmp_path: Path) -> None:
    flags = ("-w", "1", "--epochs", "1", "--run", "one")

    with run(tmp_path, TASK, *flags, PACELINE_WORKERS="3", PACELINE_EPOCHS="3") as process:
        out, err = process.communicate()

    assert process.returncode == 0, err
    assert "workers 1, servers 1, epochs 1" in out
    assert err.splitlines() == ["while it loads"]
    logs = tmp_path / "runs/one/logs"
    assert "in data()" in (logs / "sharder.log").read_text()
    for name in ("check", "worker-0", "evaluator"):
        assert (logs / f"{name}.log").read_text().startswith("while it loads\nin model()\n"), name


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM], [signal.SIGINT]))
def test_a_file_that_takes_long_is_heard_at_once_and_leaves_nothing_when_it_is_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with run(tmp_path, WAITS, TMPDIR=str(temporary)) as process:
        pid = int(process.stderr.readline().removeprefix("it is "))
        process.send_signal(number)
        assert process.wait(60) == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]
        if number == signal.SIGINT:
            eventually(lambda: is_gone(pid), "what the file has started ends")
        else:
            os.kill(pid, signal.SIGKILL)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed .SIGKILL.: .* memory ran out.* Load less at the top"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal 11 .SIGSEGV..* To see which line does it: python -X"),
        ("os._exit(0)", "own.py ended the process that loads it. Remove the code that ends the process"),
    ],
)
def test_a_file_that_ends_its_process_is_told_with_what_to_do(
    begun: Forker, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "own.py").write_text(f"import os, signal\n{text}\n")

    with pytest.raises(PacelineError, match=told):
        read_forked(begun, str(tmp_path / "own.py"), Flags())


def test_a_mistake_in_the_file_ends_with_its_own_sentence_after_what_it_printed(begun: Forker, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from paceline.launch.forks.begin_early import child_environment\n"
        "from paceline.launch.forks.forker import Forker, Loads\n"
        "from paceline.launch.supervise.read_config_forked import read_forked\n"
        "from paceline.settings.flags import Flags\n"
        "read_forked(Forker(Loads(('json',)), child_environment(1)), 'own.py', Flags())\n"
    )
    (tmp_path / "own.py").write_text("print('first')\n1 / 0\n")

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 78
    first, second = done.stderr.splitlines()
    assert first == "first"
    assert second.endswith("own.py, line 2: ZeroDivisionError: division by zero")


def test_settings_that_cannot_be_told_are_left_to_the_file(begun: Forker, tmp_path: Path) -> None:
    """What the reader says is JSON."""
    (tmp_path / "own.py").write_text(
        "SETTINGS = {'workers': 3, 'seed': __import__('numpy').int64(5)}\ndef data(path): ...\ndef model(): ...\n"
    )

    found = read_forked(begun, str(tmp_path / "own.py"), Flags())

    assert (found.workers, found.seed) == (3, 5)

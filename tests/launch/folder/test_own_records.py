"""What the launcher keeps of a run, on a disk that is full or failing; and that a run without its data has no folder."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import DataError
from paceline.core.settings.config import Config
from paceline.launch.folder import own_records
from paceline.launch.folder.own_records import OwnRecords, append
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.supervise.children import Child
from paceline.tasks.task import load_config


class Disk:
    """Takes what is written, or is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        for owner, name in ((own_records, "append"), (RunFolder, "write_facts")):
            monkeypatch.setattr(owner, name, self._taking(getattr(owner, name)))

    def _taking(self, write):  # type: ignore[no-untyped-def]
        def taken(*words, **facts):  # type: ignore[no-untyped-def]
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(*words, **facts)

        return taken


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_full_disk_is_said_once_and_so_is_that_there_is_space_again(tmp_path: Path, disk: Disk) -> None:
    said: list[str] = []
    own = OwnRecords(RunFolder(tmp_path), said.append)

    for disk.is_full in (False, True, True, False, False):
        own.line("{}")

    assert len(said) == 2
    assert "metrics.jsonl: No space left on device. The run goes on" in said[0]
    assert "can be written again" in said[1]
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n" * 3


def test_facts_that_the_disk_did_not_take_are_written_with_the_next_line(tmp_path: Path, disk: Disk) -> None:
    folder = RunFolder(tmp_path)
    own = OwnRecords(folder, print)
    own.note(exit_code=None)

    disk.is_full = True
    own.note(pids={"server-0": 7})
    own.note(chief="127.0.0.1:1")
    assert folder.facts() == {"format": 1, "exit_code": None}
    disk.is_full = False
    own.line("{}")

    assert folder.facts() == {"format": 1, "exit_code": None, "pids": {"server-0": 7}, "chief": "127.0.0.1:1"}


def test_a_line_that_only_half_fits_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metrics.jsonl"
    append(file, b"first\n")
    write = os.write

    def half(descriptor: int, content: bytes) -> int:
        if content == b"second\n":
            return write(descriptor, content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        append(file, b"second\n")
    monkeypatch.undo()
    append(file, b"third\n")
    assert file.read_text() == "first\nthird\n"


def test_run_json_that_can_not_be_written_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="Read-only"):
        RunFolder(tmp_path).write_facts(exit_code=0)
    assert list(tmp_path.iterdir()) == []


def test_a_process_whose_log_can_not_be_opened_starts_without_one(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    child = Child("worker-0", "worker", ["-c", "print('lost')"], tmp_path / "logs" / "worker-0.log", os.environ)

    child.start()
    while child.poll() is None:
        pass

    assert (child.code, child.is_mute, child.tail()) == (0, True, "")


TALK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
from paceline.rpc.process import make_log
say = make_log("talker")
for number in range(40):
    say("an event", number=number)
    print("a line of the user's")
    print("more", file=sys.stderr, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say("the last one")
"""


def test_a_process_whose_log_takes_no_more_goes_on_and_writes_again_once_there_is_space(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        ended = subprocess.run([sys.executable, "-c", TALK], stdout=file, stderr=file, check=False)

    lines = log.read_text().splitlines()
    assert ended.returncode == 0
    assert json.loads(lines[0])["number"] == 0
    assert "the last one" in log.read_text()
    assert "Traceback" not in log.read_text()


OWN = "def data(path):\n    raise AssertionError(path)\n\ndef model():\n    pass\n"


def asks(task: str, path: str) -> Config:
    return load_config(overrides={"task": task, "data": {"path": path}, "run": "one"})


@pytest.mark.parametrize(
    ("task", "path", "told"),
    [
        ("svm", "nowhere/a9a", "Can't read nowhere/a9a: No such file"),
        ("svm", "a9a", "Can't read a9a: No such file"),
        ("cifar10", "nowhere/cifar", "There is no CIFAR-10 at nowhere/cifar. Get the binary version"),
    ],
)
def test_the_task_says_what_is_missing_and_nothing_is_written(
    task: str, path: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match=told):
        open_run(asks(task, path), runs=tmp_path / "runs")
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_begun_no_longer_needs_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a9a").write_text("+1 1:1\n")
    config = asks("svm", "a9a")
    open_run(config, runs=tmp_path / "runs")
    (tmp_path / "a9a").unlink()

    assert open_run(config, runs=tmp_path / "runs")[0].config.is_file()


def test_a_run_without_its_data_is_not_removed_to_start_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a9a").write_text("+1 1:1\n")
    before, _ = open_run(asks("svm", "a9a"), runs=tmp_path / "runs")

    with pytest.raises(DataError, match="Can't read a8a"):
        open_run(asks("svm", "a8a"), fresh=True, runs=tmp_path / "runs")
    assert before.config.is_file()


def test_a_word_that_only_a_users_own_task_knows_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    assert open_run(asks(str(tmp_path / "own.py"), "few"), runs=tmp_path / "runs")[0].config.is_file()

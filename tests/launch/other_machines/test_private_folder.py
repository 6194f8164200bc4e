"""Folders with keys: nothing of them stays, also after a kill."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.launch.other_machines.private_folder import JOINER, private_folder
from tests.support.tree import ROOT

HOLDS = f"""
import sys
from paceline.launch.other_machines.private_folder import private_folder
with private_folder({JOINER!r}) as folder:
    (folder / "key").write_text("secret")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_only_this_user_may_read_it_and_it_is_deleted_at_the_end(place: Path) -> None:
    with private_folder(JOINER) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "key").touch()
        with private_folder(JOINER) as other:
            assert folder.exists(), "that of a living one is left alone"
            assert other != folder
    assert list(place.iterdir()) == []


def test_what_was_left_without_anybody_is_deleted_by_the_next_one(place: Path) -> None:
    left = place / f"{JOINER}old"
    left.mkdir()
    (left / ".lock").touch()
    (left / "key").touch()
    with private_folder(JOINER) as folder:
        assert list(place.iterdir()) == [folder]


def test_it_goes_with_a_process_that_was_killed_with_its_whole_group(place: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        text=True,
    ) as holds:
        assert holds.stdout is not None
        folder = Path(holds.stdout.readline().strip())
        assert (folder / "key").exists()
        os.killpg(holds.pid, 9)
    end = time.monotonic() + 20
    while folder.exists():
        assert time.monotonic() < end
        time.sleep(0.02)

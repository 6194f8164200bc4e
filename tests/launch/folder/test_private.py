"""What runs and their parts make can be read by this user alone; what exists keeps its mode, and of a
machine's folder with keys nothing stays."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paceline.base.private import make_private, write_private
from paceline.launch.folder.run_folder import open_run
from paceline.launch.linear_without_servers import _make
from paceline.launch.other_machines.private_folder import JOINER, private_folder
from paceline.server.state_folder import StateFolder
from paceline.settings.load_settings import load
from paceline_papers.reproduce.kept import RunStore
from paceline_studies.search.folder import SearchFolder, opened
from tests.support.private_files import open_to_others, read_by_nobody
from tests.support.processes import eventually
from tests.support.tree import ROOT


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """The umask of somebody who lets all others read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_all_folders_that_are_missing_are_made_for_this_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b" / "c")

    assert [mode(tmp_path / each) for each in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_folder_that_its_group_shares_stays_as_it_is(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o2775)  # as Kubernetes gives it with fsGroup

    make_private(volume)
    StateFolder(volume, 3, lambda event, **facts: None).close()

    assert volume.stat().st_mode & 0o7777 == 0o2775


def test_a_folder_below_a_file_is_refused_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_private(tmp_path / "file" / "a" / "b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can read as another user")
def test_another_user_reads_nothing_below_such_a_folder() -> None:
    with TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        make_private(Path(place) / "mine")
        files = [Path(place) / "open.txt", Path(place) / "mine" / "closed.txt"]
        for file in files:
            file.write_text("")
            file.chmod(0o644)

        assert read_by_nobody(files) == [str(files[0])]
        assert open_to_others(Path(place)) == [place, str(files[0])]


def a_run(place: Path) -> None:
    open_run(load(None, {"task": "digits", "run": "mine"}), runs=place / "runs")


def a_search(place: Path) -> None:
    with opened(SearchFolder(place / "searches" / "mine"), fresh=False) as folder:
        folder.write("results.md", b"")


def a_state_folder(place: Path) -> None:
    StateFolder(place / "server-0", 3, lambda event, **facts: None).close()


def kept_runs(place: Path) -> None:
    RunStore(place / "runs.jsonl" / "mine.jsonl", {"name": "made up"}).add(("row", 1), {"score": 1.0}, 1.0)


def a_model_without_servers(place: Path) -> None:
    _make(place / "models")


@pytest.mark.parametrize("make", [a_run, a_search, a_state_folder, kept_runs, a_model_without_servers])
def test_what_is_made_is_read_by_this_user_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)

    assert [path for path in tmp_path.iterdir() if open_to_others(path)] == []
    assert [mode(path) for path in tmp_path.iterdir()] == [0o700]


def test_a_run_that_somebody_has_opened_to_others_stays_open(tmp_path: Path) -> None:
    a_run(tmp_path)
    (tmp_path / "runs").chmod(0o755)
    (tmp_path / "runs" / "mine").chmod(0o750)

    open_run(load(None, {"task": "digits", "run": "mine"}), runs=tmp_path / "runs")

    assert mode(tmp_path / "runs" / "mine") == 0o750


def test_a_file_is_replaced_by_one_that_only_this_user_may_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    (tmp_path / "a").chmod(0o644)
    write_private(tmp_path / "a", b"word")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "a").stat().st_mode & 0o777) == (b"word", 0o600)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "behind")
    write_private(tmp_path / "out", b"word")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "behind").read_bytes() == b"word"
    write_private(Path("/dev/null"), b"word")
    assert Path("/dev/null").is_char_device()


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
        folder = Path(holds.stdout.readline().strip())
        assert (folder / "key").exists()
        os.killpg(holds.pid, 9)
    eventually(lambda: not folder.exists())

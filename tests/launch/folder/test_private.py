"""What runs and their parts make can be read by this user alone; what exists keeps its mode."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paceline.base.private import make_private
from paceline.launch.folder.run_folder import open_run
from paceline.launch.linear_without_servers import _make
from paceline.server.state_folder import StateFolder
from paceline.settings.load_settings import load
from paceline.studies.search.folder import SearchFolder, opened
from paceline_papers.reproduce.kept import Kept
from tests.support.private_files import open_to_others, read_by_nobody


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
    Kept(place / "runs.jsonl" / "mine.jsonl", {"name": "made up"}).add(("row", 1), {"score": 1.0}, 1.0)


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

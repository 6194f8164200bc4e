import sys
import sysconfig
from pathlib import Path

import pytest

from paceline.settings.own_folder import find_beside, installed_first


@pytest.mark.parametrize("own", ["", "/home/user/notebooks"])
@pytest.mark.parametrize("variable", [None, "", "/opt/libraries", ":/opt/libraries"])
def test_the_users_folder_comes_last_also_where_python_calls_it_nothing(
    own: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt, a notebook and `python -c` have '' for the working folder."""
    if variable is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", variable)
    before = [own, "/opt/libraries", sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]]
    monkeypatch.setattr(sys, "path", list(before))

    with installed_first():
        assert sys.path.index(own) > sys.path.index(sysconfig.get_paths()["purelib"])

    assert sys.path == before


def test_what_a_tasks_file_adds_to_the_path_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [sysconfig.get_paths()["stdlib"]])

    with installed_first():
        sys.path.append("/home/user/modules")

    assert sys.path == ["/home/user/modules", sysconfig.get_paths()["stdlib"]]


def test_the_folder_of_a_task_comes_last_and_stays_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = ["/home/user", sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]]
    monkeypatch.setattr(sys, "path", list(before))

    with installed_first():
        find_beside(tmp_path / "task.py")
    find_beside(tmp_path / "other.py")

    assert sys.path == [*before, str(tmp_path.resolve())]


def test_a_task_beside_the_script_is_found_where_the_script_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = [str(tmp_path.resolve()), sysconfig.get_paths()["stdlib"]]
    monkeypatch.setattr(sys, "path", list(before))

    with installed_first():
        find_beside(tmp_path / "task.py")

    assert sys.path == before

"""Where a module's file is, and the package of a file."""

from pathlib import Path

import pytest

from paceline.base.own_files import file_of_module, package_of
from paceline.core.errors import ConfigError

TREE = {
    "pkg/__init__.py": "raise RuntimeError('nobody imports it to find a file')\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/train.py": "",
    "pkg/sub/__main__.py": "",
    "loose/train.py": "",
    "train.py": "",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [("train", "train.py"), ("pkg.sub.train", "pkg/sub/train.py"), ("pkg.sub", "pkg/sub/__main__.py")],
)
@pytest.mark.usefixtures("here")
def test_a_module_is_the_file_that_python_runs_by_its_name(name: str, file: str) -> None:
    assert file_of_module(name) == file


def test_an_installed_module_has_its_whole_path() -> None:
    assert file_of_module("json.tool").endswith("/json/tool.py")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("pkg.nothing", "no module pkg.nothing"),
        ("nothing.at.all", "no module nothing here"),
        ("pkg", "no module pkg.__main__"),
        ("loose.train", "loose has no __init__.py"),
        ("sys", "has no Python file"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_no_module_here_is_refused(name: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        file_of_module(name)


def test_a_files_package_ends_where_no_init_is_next_to_it(here: Path) -> None:
    assert package_of(here / "pkg/sub/train.py") == ("pkg.sub", here)
    assert package_of(here / "loose/train.py") == ("", here / "loose")

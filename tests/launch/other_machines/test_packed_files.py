"""What goes to other machines of the head's files, and what is refused on either side."""

import io
import tarfile
from pathlib import Path

import pytest
import yaml

from paceline.core.errors import DataError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.other_machines import packed_files
from paceline.launch.other_machines.packed_files import packed, script_folder, unpack


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("train.py", "parts/layers.py", "words.txt", "runs/old/model.pt", ".git/HEAD", "__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    return folder / "train.py"


def there(config: Config, run: Path, place: Path) -> list[str]:
    """What a host has then."""
    place.mkdir()
    unpack(packed(config, run), place)
    return sorted(file.relative_to(place).as_posix() for file in place.rglob("*") if file.is_file())


def test_the_scripts_folder_goes_there_without_what_no_script_needs(script: Path, tmp_path: Path) -> None:
    config, run, place = Config(task=str(script)), tmp_path / "run", tmp_path / "there"
    found = there(config, run, place)
    assert found == ["config.yaml", "folder-0/parts/layers.py", "folder-0/train.py", "folder-0/words.txt"]
    settings = Config.model_validate(yaml.safe_load((place / "config.yaml").read_text()))
    assert settings.task == str(place / "folder-0/train.py")
    assert script_folder(settings, place) == place / "folder-0"


def test_a_script_in_a_package_takes_the_whole_package_along(tmp_path: Path) -> None:
    for name in ("lab/__init__.py", "lab/data.py", "lab/runs_of/__init__.py", "lab/runs_of/train.py", "other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    config, place = Config(task=str(tmp_path / "lab/runs_of/train.py")), tmp_path / "there"

    found = there(config, tmp_path / "run", place)

    inside = ("__init__.py", "data.py", "runs_of/__init__.py", "runs_of/train.py")
    assert found == ["config.yaml", *(f"folder-0/lab/{name}" for name in inside)]
    assert Config.model_validate(yaml.safe_load((place / "config.yaml").read_text())).task == str(
        place / "folder-0/lab/runs_of/train.py"
    )


def test_a_scripts_settings_name_it_by_its_new_place_too(script: Path, tmp_path: Path) -> None:
    run, place = tmp_path / "run", tmp_path / "there"
    run.mkdir()
    (run / "given.yaml").write_text(yaml.safe_dump({"task": str(script), "arguments": ["--lr", "1"]}))
    there(Config(task=str(script)), run, place)
    assert yaml.safe_load((place / "given.yaml").read_text()) == {
        "task": str(place / "folder-0/train.py"),
        "arguments": ["--lr", "1"],
    }


def test_a_built_in_task_takes_no_folder_along(tmp_path: Path) -> None:
    assert there(Config(task="digits"), tmp_path / "run", tmp_path / "there") == ["config.yaml"]


def test_policies_of_the_users_go_along(tmp_path: Path) -> None:
    own = tmp_path / "run/own"
    own.mkdir(parents=True)
    (own / "mine.py").write_text("...")
    assert "own/mine.py" in there(Config(), tmp_path / "run", tmp_path / "there")


def test_what_pacelineignore_names_stays_at_home(script: Path, tmp_path: Path) -> None:
    (script.parent / ".pacelineignore").write_text("# not these\nparts/\n*.txt\n")
    assert there(Config(task=str(script)), tmp_path / "run", tmp_path / "there") == ["config.yaml", "folder-0/train.py"]


def test_a_folder_that_is_too_large_is_refused_with_its_largest_parts(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_files, "MOST", 1 << 20)
    (script.parent / "data").mkdir()
    (script.parent / "data/images.bin").write_bytes(bytes(3 << 20))
    with pytest.raises(UsageError, match=r"holds 3 MiB; at most 1 MiB goes .*Largest: data/ \(3 MiB\)") as told:
        packed(Config(task=str(script)), tmp_path / "run")
    assert ".pacelineignore" in str(told.value)


def test_a_folder_with_too_many_files_is_refused(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_files, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="holds more than 2 files"):
        packed(Config(task=str(script)), tmp_path / "run")


def tar_of(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.linkname = "/etc/passwd"
        tar.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-of-it/x"])
def test_nothing_is_written_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    place = tmp_path / "a/b"
    place.mkdir(parents=True)
    with pytest.raises(DataError, match="or points outside the archive; nothing was started"):
        unpack(tar_of(name), place)
    assert [file for file in tmp_path.rglob("*") if file.is_file() and place not in file.parents] == []
    assert not Path("/tmp/outside-of-it").exists()


def test_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has a member .link. that is a link or a sparse file, .* nothing was started"):
        unpack(tar_of("link", tarfile.SYMTYPE), tmp_path)


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be unpacked"):
        unpack(b"nonsense", tmp_path)

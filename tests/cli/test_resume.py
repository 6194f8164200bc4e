"""A run is resumed by its folder's config.yaml from anywhere, also after the folder was moved or given another name."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.cli.resume import kept_config, resumed
from paceline.core.errors import ConfigError, TooNew, UsageError
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RUNS, RunFolder, open_run
from paceline.rpc.agreed_settings import agreed_settings
from paceline.settings.load_settings import load

TASK = "def data(path):\n    pass\n\n\ndef model():\n    pass\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Started in tmp_path/home, with a user's task, and finished."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    Path("own.py").write_text(TASK)
    folder, config = open_run(Config(run="one", task="./own.py"), runs=tmp_path / "home" / RUNS)
    folder.keep_task(config.task)
    folder.write_facts(home=str(Path.cwd()), finished=True, accuracy=0.5)
    return folder


def resume(config: Path) -> tuple[RunFolder, Config, list[str]]:
    """The folder in which it goes on, with which settings, and what is said."""
    said: list[str] = []
    what, runs = resumed(str(config), said.append)
    assert what is not None
    settings = RunFolder(Path(what).parent).settings()
    return open_run(settings, runs=runs)[0], settings, said


def test_from_another_folder_it_goes_on_where_it_was_started(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    done = CliRunner().invoke(app, ["run", str(run.config)])

    assert done.exit_code == 0
    assert f"{run.config} is of a run whose relative paths count from {tmp_path / 'home'}; it goes on" in done.stderr
    assert "run one is finished already" in done.stdout
    assert Path.cwd() == tmp_path / "home"
    assert resume(Path("runs/one/config.yaml"))[0] == RunFolder(Path("runs/one"))


def test_a_moved_folder_goes_on_in_its_new_place(run: RunFolder, tmp_path: Path) -> None:
    moved = Path(shutil.move(run.path, tmp_path / "archive" / "one"))

    folder, config, said = resume(moved / "config.yaml")

    assert folder.path == moved
    assert (config.task, Path.cwd(), said) == ("./own.py", tmp_path / "home", [])
    assert not (tmp_path / "home/runs/one").exists()


def test_a_moved_folder_whose_task_file_is_gone_goes_on_with_its_copy(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    for place in ("a", "b"):  # moved twice
        moved = Path(shutil.move(run.path, tmp_path / place / "one"))
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        folder, config, _ = resume(moved / "config.yaml")
        run = folder

        assert folder.path == moved
        assert config.task == str(moved / "task/own.py")
    done = CliRunner().invoke(app, ["run", str(run.config)])
    assert (done.exit_code, "run one is finished already" in done.stdout) == (0, True)


def test_a_folder_with_another_name_goes_on_under_that(run: RunFolder) -> None:
    run.path.rename("runs/two")

    folder, config, _ = resume(Path("runs/two/config.yaml"))

    assert (folder.name, config.run) == ("two", "two")
    assert not run.path.exists()


def test_a_folder_whose_servers_have_files_keeps_its_name(run: RunFolder) -> None:
    run.write_facts(finished=False)
    run.server(0).mkdir()
    (run.server(0) / "term.json").write_text("{}")
    run.path.rename("runs/two")
    before = Path("runs/two/config.yaml").read_text()

    with pytest.raises(ConfigError, match=r"runs/two was run 'one', .* call the folder one again"):
        resume(Path("runs/two/config.yaml"))
    assert Path("runs/two/config.yaml").read_text() == before


def test_a_run_that_is_going_on_is_not_touched(run: RunFolder) -> None:
    run.path.rename("runs/two")

    with RunFolder(Path("runs/two")).locked(), pytest.raises(ConfigError, match="Run 'two' is going on already"):
        resumed("runs/two/config.yaml", print)


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ("format", TooNew, "has format 2; this release"),
        ("setting", ConfigError, r"warp: there is no such setting.* Correct the file, or take the release that"),
    ],
)
def test_a_folder_that_is_refused_is_not_changed(run: RunFolder, wrong: str, error: type[Exception], told: str) -> None:
    run.path.rename("runs/two")
    run = RunFolder(Path("runs/two"))
    if wrong == "format":
        run.write_facts(format=2)
    else:
        run.config.write_text(f"{run.config.read_text()}warp: 9\n")
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}

    with pytest.raises(error, match=told) as refused:
        resumed(str(run.config), print)

    assert "--fresh" not in str(refused.value)
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before


def test_what_is_no_runs_config_is_left_alone(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("task: digits\n")

    for what in ("digits", None, "my-run.yaml", str(tmp_path / "config.yaml")):
        assert resumed(what, print) == (what, RUNS)


def test_the_name_of_a_run_that_is_there_is_enough_to_resume_it(run: RunFolder) -> None:
    assert Path(kept_config(run.name)).samefile(run.config)


@pytest.mark.parametrize(("name", "told"), [(None, "a task like digits"), ("nix", "there is no runs/nix/config.yaml")])
def test_without_a_task_and_a_run_that_is_there_one_is_asked_for(name: str | None, told: str) -> None:
    with pytest.raises(UsageError, match=f"Missing argument 'TASK.*{told}"):
        kept_config(name)


def test_servers_know_a_run_again_whose_task_file_was_moved() -> None:
    before, now = (agreed_settings(Config(task=task)) for task in ("./own.py", "/elsewhere/one/task/own.py"))

    assert before == now != agreed_settings(Config(task="./other.py"))


def test_a_run_that_is_resumed_by_its_folder_takes_its_policys_file_as_it_is_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from paceline.core.policies.builtin.asp import Asp\n\nclass Mine(Asp):\n    pass\n"
    Path("mine.py").write_text(text)
    folder, _ = open_run(load(None, {"policy": "mine.py", "run": "own"}))
    folder.keep_own([Path("mine.py")])
    folder.write_facts(finished=False)
    Path("mine.py").write_text(f"{text}    length: int = 3\n")

    said: list[str] = []
    resumed(str(folder.config), said.append)

    assert any("mine.py has changed since this run began" in line for line in said)
    assert "length" in type(build_policy(load(folder.config).policy)).model_fields

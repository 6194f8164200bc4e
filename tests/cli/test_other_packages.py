"""The help of `paceline` on one screen, commands under their earlier names, and those that other packages bring."""

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from paceline.cli import other_packages
from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError

ROWS, COLUMNS = 40, 80
GREETINGS = """
def greet(name: str, loud: bool = False) -> None:
    'Greet somebody.'
    print(f"hello {name}" + "!" * loud)

import typer
cards = typer.Typer(help="Cards for all occasions.", rich_help_panel="Stationery")
cards.command()(greet)
cards.command("list")(lambda: print("no card"))
"""


def paceline(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)})


@pytest.fixture
def greeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a command."""
    about = tmp_path / "greetings-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[paceline.commands]\ngreet-all = greetings_of_a_test:greet\ncards = greetings_of_a_test:cards\n"
    )
    (tmp_path / "greetings_of_a_test.py").write_text(GREETINGS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("greeting")
def test_a_command_of_an_installed_package_runs_and_is_in_the_help() -> None:
    assert paceline("greet-all", "you", "--loud").output == "hello you!\n"
    assert "Greet somebody." in paceline("--help").output


@pytest.mark.usefixtures("greeting")
def test_a_group_of_commands_runs_by_its_entry_points_name_and_is_in_the_panel_that_it_names() -> None:
    assert paceline("cards", "greet", "you").output == "hello you\n"
    assert paceline("cards", "list").output == "no card\n"
    assert re.search(r"Stationery ─+╮\s+│ cards +Cards for all occasions\.", paceline("--help").output)


@pytest.mark.usefixtures("greeting")
def test_a_mistake_in_another_packages_command_line_ends_as_in_ones_here() -> None:
    assert paceline("greet-all").exit_code == paceline("run", "--nothing").exit_code != 0


@pytest.mark.usefixtures("greeting")
def test_a_package_that_can_not_be_loaded_breaks_no_other_command(tmp_path: Path) -> None:
    (tmp_path / "greetings_of_a_test.py").write_text("import no_such_module_at_all\n")
    sys.modules.pop("greetings_of_a_test", None)

    shown, result = paceline("--help"), paceline("greet-all", "you", "--loud")

    assert shown.exit_code == 0
    assert "Can't be loaded: ModuleNotFoundError in greetings." in shown.output
    assert result.exit_code == ConfigError.exit_code
    assert "No module named 'no_such_module_at_all'" in result.output
    assert "pip install --upgrade greetings" in result.output


@pytest.mark.parametrize(
    ("name", "package"), [("reproduce", "paceline-papers"), ("plan", "paceline-studies"), ("k8s", "paceline-k8s")]
)
def test_a_command_whose_package_is_not_installed_says_which_one_it_is(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_packages, "installed_points", lambda group: ())

    result = paceline(name, "deploy", "demo")

    assert result.exit_code == paceline("run", "--nothing").exit_code
    assert f"pip install {package}" in re.sub(r"[\s│]+", " ", result.output)
    assert name not in paceline("--help").output


def test_a_name_that_no_package_has_is_refused_as_before() -> None:
    assert "No such command 'nonsense'" in paceline("nonsense").output


def test_the_help_fits_one_screen_with_a_line_for_each_command() -> None:
    lines = paceline("--help").output.splitlines()

    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= COLUMNS
    shown = [line.split()[1] for line in lines if line.startswith("│ ")]
    named = {"run", "launch", "demo", "status", "stop", "doctor", "plan", "shard", "report", "keys", "k8s"}
    assert named <= set(shown)
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("earlier", other_packages.MOVED)
def test_an_earlier_name_goes_on_and_says_the_new_one(earlier: str) -> None:
    now = other_packages.MOVED[earlier]

    result = paceline(earlier, "--help")

    assert f"paceline {earlier} is now: paceline {' '.join(now)}" in result.stderr
    shown, new = (text.splitlines()[3:] for text in (result.stdout, paceline(*now, "--help").stdout))
    assert shown == new
    assert f"│ {earlier} " not in paceline("--help").output


def test_an_earlier_name_is_not_proposed_for_a_typo() -> None:
    assert "explain" not in paceline("explan").output

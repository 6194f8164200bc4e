"""The help of `paceline`: one screen, and commands under their earlier names."""

import pytest
from typer.testing import CliRunner, Result

from paceline.cli import other_packages
from paceline.cli.__main__ import app

ROWS, COLUMNS = 40, 80


def paceline(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)})


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

"""A test that failed runs once more, in CI alone: what passes then is named, what fails again fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

FLAKY = """
from pathlib import Path

def test_is_lucky_the_second_time():
    seen = Path("seen")
    before = seen.exists()
    seen.touch()
    assert before

def test_has_no_luck():
    assert {luck}

def test_is_good():
    with open("good", "a") as file:
        file.write(".")
"""


def tried(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the file's tests, and then its second chance, as the Makefile does."""
    (folder / "test_it.py").write_text(text)
    light = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *options], cwd=folder, env=light).returncode
    command = [sys.executable, ROOT / "tools/second_chance.py", str(code)]
    return subprocess.run(command, cwd=folder, env=light, capture_output=True, text=True)


def test_a_test_that_passes_by_itself_is_named_and_no_other_one_runs_again(tmp_path: Path) -> None:
    done = tried(tmp_path, FLAKY.format(luck=True))

    assert done.returncode == 0
    assert "\nFLAKY test_it.py::test_is_lucky_the_second_time\n" in done.stdout
    assert (tmp_path / "good").read_text() == "."


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    done = tried(tmp_path, FLAKY.format(luck=False))

    assert done.returncode == 1
    assert "FAILED twice: test_it.py::test_has_no_luck" in done.stdout


def test_more_than_three_have_no_second_chance(tmp_path: Path) -> None:
    done = tried(tmp_path, "".join(f"def test_{number}():\n    assert False\n" for number in range(4)))

    assert (done.returncode, done.stdout) == (1, "4 tests failed; a second chance is for 3 at most.\n")


@pytest.mark.parametrize(("text", "code"), [("def test_one():\n    raise KeyboardInterrupt\n", 2), ("", 5)])
def test_a_run_that_did_not_run_its_tests_has_no_second_chance(tmp_path: Path, text: str, code: int) -> None:
    assert tried(tmp_path, text).returncode == code

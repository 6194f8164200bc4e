"""What `make test` and `make nightly` add to pytest: the CPU time that each folder of tests takes, and may take; in CI another
try of a test that failed; and a page with what each part's last night gave."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cpu import START, folder_of, read_budgets
from tests.support.tree import ROOT
from tools import nightly
from tools.nightly import Part

TESTS = ("tests", "k8s/tests", "papers/tests", "studies/tests")
CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support import cpu
cpu.read_budgets = lambda: {{"idle": 1, "busy": 0.2, cpu.START: 60}}

def pytest_configure(config):
    config.pluginmanager.register(cpu.CpuOfTests(Path(__file__).parent))
"""
BUSY = """
import subprocess, sys

def test_a_child_works():
    work = "import time\\nwhile time.process_time() < 0.4: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
"""


def test_the_work_of_a_child_counts_for_its_folder_and_one_over_its_budget_is_named(tmp_path: Path) -> None:
    for name, text in {"busy": BUSY, "idle": "def test_nothing():\n    pass\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)

    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--import-mode=importlib"]
    environment = os.environ | {"PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    seconds = {name: float(number) for number, name in re.findall(r"^ +([\d.]+)  ([\w ]+?)(?:  |$)", done.stdout, re.M)}
    assert seconds["busy"] >= 0.4
    assert seconds["idle"] < seconds["busy"]
    assert re.findall(r"(\w+)  OVER its budget of ([\d.]+) s", done.stdout) == [("busy", "0.2")]


def test_each_folder_of_tests_has_a_budget_and_all_together_are_14_minutes_at_most() -> None:
    budgets = read_budgets()

    files = [path.relative_to(ROOT).as_posix() for folder in TESTS for path in (ROOT / folder).glob("**/test_*.py")]
    assert {START, *map(folder_of, files)} == set(budgets)
    assert sum(budgets.values()) <= 14 * 60


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


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of a night with three short parts."""
    parts = {
        "good": Part("echo 3 passed", "passes"),
        "bad": Part("echo 1 failed >&2; exit 4", "fails"),
        "other": Part("echo 7 passed", "is tried last"),
    }
    monkeypatch.setattr(nightly, "PARTS", parts)
    monkeypatch.setattr(nightly, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(nightly, "PAGE", tmp_path / "page")
    return tmp_path / "page"


def night(*parts: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns what the command ends with: "" where nothing failed."""
    monkeypatch.setattr("sys.argv", ["nightly", *parts])
    try:
        nightly.main()
    except SystemExit as end:
        return str(end.code)
    return ""


def test_it_goes_on_after_a_part_that_fails_and_then_fails(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert night(monkeypatch=monkeypatch).startswith("FAILED: bad.")

    good, bad, other = page.read_text().splitlines()[-3:]
    assert good.endswith("| passed: 3 passed |")
    assert bad.endswith("| FAILED, exit code 4: 1 failed |")
    assert other.endswith("| passed: 7 passed |")
    assert (page.parent / "logs" / "bad.log").read_text() == "1 failed\n"


def test_a_part_by_itself_leaves_the_other_rows_as_they_are(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night(monkeypatch=monkeypatch)
    before = page.read_text().splitlines()
    nightly.PARTS["other"] = Part("exit 2", "is tried last")

    assert night("other", monkeypatch=monkeypatch).startswith("FAILED: other.")

    after = page.read_text().splitlines()
    assert after[:-1] == before[:-1]
    assert "FAILED, exit code 2" in after[-1]


def test_a_part_that_never_ran_says_so(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert night("good", monkeypatch=monkeypatch) == ""

    assert [line.split(" | ")[2] for line in page.read_text().splitlines()[-2:]] == ["never", "never"]


def test_a_part_that_there_is_not_is_refused_before_anything_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert night("good", "god", monkeypatch=monkeypatch) == "2"

    assert "there is no part god; there are good, bad, other" in capsys.readouterr().err
    assert not page.exists()


def test_the_page_keeps_what_it_has_where_only_a_purpose_changed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night("good", monkeypatch=monkeypatch)
    before = page.read_text()
    nightly.PARTS["bad"] = Part("exit 4", "fails always")

    nightly.write(nightly.last_runs())

    assert page.read_text() == before.replace("| fails |", "| fails always |")

"""`make test` says how much CPU time each folder of tests takes, with the processes that they start, and what it may take."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.cpu import START, folder_of, read_budgets
from tests.support.tree import ROOT

TESTS = ("tests", "k8s/tests", "papers/tests")
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

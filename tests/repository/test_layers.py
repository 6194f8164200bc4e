"""What may import what, what is never used, and what configuration does not load."""

import ast
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tree import ROOT

SOURCES = sorted(
    path
    for folder in ("paceline", "server", "worker", "sharder", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
UNPICKLES = ROOT / "paceline/processes/packing.py"
"""What brings a script's own objects to the children of its process."""
RUNS_CODE_FROM_DATA = {
    "import pickle": "TID251",
    "import dill": "TID251",
    "import marshal": "TID251",
    "import joblib; joblib.load('model')": "TID251",
    "from joblib import load": "TID251",
    "import torch; torch.load('model.pt')": "TID251",
    "eval(text)": "S307",
    "exec(text)": "S102",
    "import yaml; yaml.load(text, yaml.Loader)": "S506",
    "import yaml; yaml.unsafe_load(text)": "TID251",
    "import yaml; yaml.full_load(text)": "TID251",
    "import subprocess; subprocess.run(text, shell=True)": "S602",
}


def loaded(*modules: str) -> set[str]:
    """What a process has loaded that imports these."""
    program = f"import sys, {', '.join(modules)}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_checks_the_config_loads_nothing_heavy():
    modules = ("paceline.settings.load_settings", "paceline.core.chief.run", "paceline.core.slice.plan")

    assert not {"numba", "grpc", "torch", "sklearn"} & loaded(*modules)


def test_a_command_begins_its_processes_before_it_loads_the_settings():
    assert not {"numpy", "pydantic", "paceline.settings.load_settings"} & loaded(
        "paceline.cli.__main__", "paceline.cli.exits", "paceline.launch.forks.begin_early"
    )


@pytest.mark.parametrize("line", RUNS_CODE_FROM_DATA)
def test_make_check_refuses_what_runs_code_from_data(line):
    ruff = [
        Path(sys.executable).parent / "ruff",
        "check",
        "--output-format=concise",
        "--stdin-filename=paceline/new.py",
        "-",
    ]
    done = subprocess.run(ruff, cwd=ROOT, input=line, capture_output=True, text=True, check=False)

    assert f" {RUNS_CODE_FROM_DATA[line]} " in done.stdout


def test_numpy_reads_no_pickles():
    assert [path for path in SOURCES if re.search(r"allow_pickle\s*=\s*True", path.read_text())] == []


def test_the_one_file_that_unpickles_takes_inherited_memory_alone():
    """tests/processes/test_packing.py tries files, sockets and pipes on it."""
    calls = [line.strip() for line in UNPICKLES.read_text().splitlines() if re.search(r"\bpickle\.loads?\(", line)]

    assert len(calls) == 1
    assert calls[0].startswith("return pickle.loads(main, buffers=buffers)")
    assert "main, *buffers = inherited_memory.read(descriptor)" in UNPICKLES.read_text()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Returns those inside of it; no functions are in its expressions, which are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


def test_modules_and_functions_are_short():
    """Half of all modules fit on two screens, half of all functions in a few lines. A module of over 400 lines is a warning,
    no failure: split it by thought, and don't fold lines."""
    modules = {path: len(path.read_text().splitlines()) for path in SOURCES if "v1" not in path.parts}
    functions = [
        node.end_lineno - node.lineno + 1
        for path in modules
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]

    assert statistics.median(lines for lines in modules.values() if lines) <= 120
    assert statistics.median(functions) <= 9
    if long := [f"{path.relative_to(ROOT)} ({lines})" for path, lines in modules.items() if lines > 400]:
        warnings.warn(f"over 400 lines: {', '.join(long)}", stacklevel=1)

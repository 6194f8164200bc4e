"""What may import what, what is never used, and what configuration does not load."""

import ast
import os
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


LIGHT = {
    "what checks the config": (
        "import paceline.settings.load_settings, paceline.core.chief.run, paceline.core.slice.plan",
        {"numba", "grpc", "torch", "sklearn"},
    ),
    "a command, before it begins its processes": (
        "import paceline.cli.__main__, paceline.cli.exits, paceline.launch.forks.begin_early",
        {"numpy", "pydantic", "paceline.settings.load_settings"},
    ),
    "help": ("import paceline.cli.__main__", {"numpy", "pydantic", "yaml"}),
    "a command line with a mistake": (
        "from paceline.cli.__main__ import app\n"
        "sys.argv = ['paceline', 'run', 'digits', '--set', 'epoch=1']\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert end.code == 78",
        {"torch", "numba", "grpc", "sklearn"},
    ),
    "a policy of a user's": ("from paceline.extend import Policy", {"pyarrow", "sklearn", "torch", "grpc"}),
    "a script": ("import paceline; dir(paceline)", {"torch", "grpc", "numba", "pydantic"}),
}
"""What runs, and what it does not load."""


@pytest.mark.parametrize("what", LIGHT)
def test_what_begins_or_is_imported_by_users_loads_nothing_heavy(what: str, tmp_path: Path):
    statement, heavy = LIGHT[what]
    program = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert not heavy & set(done.stdout.split())


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

"""What may import what, what is never used, and what configuration does not load."""

import ast
import re
import statistics
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.support.tree import ROOT

SOURCES = sorted(
    path
    for folder in ("paceline", "server", "worker", "sharder", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
UNPICKLES = ROOT / "paceline" / "live" / "packing.py"
"""What brings a script's own objects to the children of its process."""
FORBIDDEN = {
    "pickle": r"^\s*(?:import|from)\s+(?:_?pickle|cPickle|cloudpickle|dill|shelve|marshal|"
    r"joblib(?! import Parallel, delayed, parallel_config$))\b",
    "eval": r"(?<![\w.])eval\(",
    "exec": r"(?<![\w.])exec\(",
    "yaml.load": r"\byaml\.(?:unsafe_|full_)?load(?:_all)?\(",
    "torch.load": r"\btorch\.load\(",
    "allow_pickle": r"allow_pickle\s*=\s*True",
    "shell": r"shell\s*=\s*True",
}


def test_the_layers_hold():
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def loaded(*modules: str) -> set[str]:
    """What a process has loaded that imports these."""
    program = f"import sys, {', '.join(modules)}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["paceline.load_settings", "paceline.core.run.run", "paceline.core.slice.plan"])
def test_what_checks_the_config_loads_nothing_heavy(module):
    assert not {"numba", "grpc", "torch", "sklearn"} & loaded(module)


def test_a_command_begins_its_processes_before_it_loads_the_settings():
    assert not {"numpy", "pydantic", "paceline.load_settings"} & loaded(
        "paceline.cli.__main__", "paceline.cli.exits", "paceline.local.begin_early"
    )


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_runs_code_from_data(what):
    pattern = re.compile(FORBIDDEN[what])
    spared = UNPICKLES if what == "pickle" else None

    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        if path != spared
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


def test_the_one_file_that_unpickles_takes_inherited_memory_alone():
    """tests/live/test_packing.py tries files, sockets and pipes on it."""
    calls = [line.strip() for line in UNPICKLES.read_text().splitlines() if re.search(r"\bpickle\.loads?\(", line)]

    assert len(calls) == 1
    assert calls[0].startswith("return pickle.loads(main, buffers=buffers)")
    assert "main, *buffers = inherited_memory.read(descriptor)" in UNPICKLES.read_text()


def test_the_scan_finds_what_it_looks_for():
    bad = {
        "pickle": "import pickle",
        "eval": "x = eval(text)",
        "exec": "exec(text)",
        "yaml.load": "yaml.load(text)",
        "torch.load": "torch.load(path)",
        "allow_pickle": "np.load(path, allow_pickle=True)",
        "shell": "run(text, shell=True)",
    }
    good = [
        "model.eval()",
        "yaml.safe_load(text)",
        "safetensors.torch.load_file(path)",
        "create_subprocess_exec(program)",
    ]

    assert all(re.search(FORBIDDEN[what], line) for what, line in bad.items())
    assert not any(re.search(pattern, line) for pattern in FORBIDDEN.values() for line in good)


def test_modules_and_functions_are_short():
    """Half of all modules fit on two screens, half of all functions in a few lines. A module of over 400 lines is a warning,
    no failure: split it by thought, and don't fold lines."""
    modules = {path: len(path.read_text().splitlines()) for path in SOURCES if "v1" not in path.parts}
    functions = [
        node.end_lineno - node.lineno + 1
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]

    assert statistics.median(lines for lines in modules.values() if lines) <= 120
    assert statistics.median(functions) <= 9
    if long := [f"{path.relative_to(ROOT)} ({lines})" for path, lines in modules.items() if lines > 400]:
        warnings.warn(f"over 400 lines: {', '.join(long)}", stacklevel=1)

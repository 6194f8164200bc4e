"""What `import paceline` offers: found by completion, known to type checkers, there when it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from tests.support.tree import ROOT

pytest.importorskip("torch")
pytest.importorskip("mypy")
CACHE = ROOT / ".mypy_cache" / "user"
SETTINGS = """
[mypy]
strict = true
follow_imports = silent

[mypy-torch.*,numpy.*,scipy.*,sklearn.*,pandas.*,pyarrow.*,grpc.*,google.*]
follow_imports = skip
"""
"""What other libraries' types are makes no difference to our names, and takes most of the time."""


def test_dir_shows_what_is_public_and_nothing_else():
    shown = {name for name in dir(paceline) if not name.startswith("__")}

    assert shown == set(paceline.__all__)
    assert all(getattr(paceline, name).__doc__ for name in paceline.__all__)


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(AttributeError, match=r"no attribute 'trainn'; it has .*train"):
        _ = paceline.trainn  # type: ignore[attr-defined]


@pytest.mark.nightly  # mypy reads all of torch's users for 8 s; `make check` has the types of our own code
def test_a_strict_type_checker_knows_all_public_names(tmp_path: Path):
    names = sorted(paceline.__all__)
    unknown = "paceline.no_such_name"
    (tmp_path / "user.py").write_text(
        "\n".join(["import paceline", *(f"reveal_type(paceline.{name})" for name in names), unknown])
    )
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", f"--cache-dir={CACHE}", "user.py"]

    done = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
    )

    lines = done.stdout.splitlines()
    for number, name in enumerate(names, start=2):
        (found,) = [line.partition("Revealed type is ")[2] for line in lines if line.startswith(f"user.py:{number}:")]
        assert "def " in found, f"{name}: {found}"
    wrong = [line for line in lines if ": error: " in line]
    assert len(wrong) == 1, done.stdout
    assert f"user.py:{len(names) + 2}: error: " in wrong[0]

"""`paceline.extend`, the one place that extensions of users import from, and what `import paceline` offers."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import paceline
import paceline.extend
from paceline.base.own_files import load_file
from tests.support.tree import ROOT

FROM_HERE = [
    "Advice",
    "Assignment",
    "BUNDLED",
    "BadPush",
    "Buffer",
    "Bytes",
    "Callback",
    "Cause",
    "Clocks",
    "Cluster",
    "Codec",
    "ConfigError",
    "DataError",
    "Dataset",
    "Evidence",
    "Finding",
    "Gathered",
    "Group",
    "Kind",
    "Labelled",
    "Members",
    "Message",
    "Optimizer",
    "Outcome",
    "Own",
    "PacelineError",
    "PeerPolicy",
    "Places",
    "Policy",
    "Push",
    "SettingsRule",
    "ShardingStrategy",
    "Topology",
    "Update",
    "Vector",
    "Verdict",
    "Welcome",
    "bytes_of",
    "numbers_at",
    "read_like",
    "read_svmlight",
    "read_table",
]
FOR_SCRIPTS = [
    "Callback",
    "Result",
    "epochs",
    "evaluate",
    "launch",
    "loader",
    "log",
    "notice",
    "rank",
    "sampler",
    "split",
    "steps",
    "train",
    "workers",
    "wrap",
]
LASTING = {"paceline", "paceline.extend", "paceline.lightning", "paceline.transformers"}


@pytest.mark.parametrize(("module", "names"), [(paceline, FOR_SCRIPTS), (paceline.extend, FROM_HERE)])
def test_these_names_are_public_and_each_of_them_is_there(module, names):
    """Who changes this list changes what users rely on: say so in CHANGELOG.md."""
    assert sorted(module.__all__) == sorted(names)
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert all(getattr(paceline, name).__doc__ for name in FOR_SCRIPTS)
    assert {name for name in dir(module) if not name.startswith("__")} == set(module.__all__)


@pytest.mark.parametrize(("module", "name"), [(paceline, "train"), (paceline.extend, "Policy")])
def test_an_unknown_name_is_refused_with_those_that_there_are(module, name):
    with pytest.raises(AttributeError, match=rf"no attribute 'Other'; it has .*{name}"):
        _ = module.Other


def test_the_guide_and_the_examples_import_from_no_other_place():
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("examples/**/*.py")]
    imported = re.compile(r"^\s*(?:from (paceline[\w.]*) import|import (paceline[\w.]*))", re.MULTILINE)

    found = {
        (str(page.relative_to(ROOT)), module)
        for page in pages
        for pair in imported.findall(page.read_text())
        for module in pair
        if module and module not in LASTING
    }

    assert found == set()


def test_a_file_of_a_users_that_imports_from_a_deeper_place_is_warned_and_works(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("from paceline.extend import Codec\nfrom paceline.core.policies.policy import Policy\n")

    with pytest.warns(DeprecationWarning, match=r"mine\.py, line 2: paceline\.core\.policies\.policy may be elsewhere"):
        module = load_file("mine_of_a_test", str(file))

    assert module.Policy is paceline.extend.Policy


def test_a_file_that_imports_from_paceline_extend_is_not_warned(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("import paceline\nfrom paceline.extend import Policy\n")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_file("mine_of_a_test", str(file))

    assert caught == []


CACHE = ROOT / ".mypy_cache" / "user"
SETTINGS = """
[mypy]
strict = true
follow_imports = silent

[mypy-torch.*,numpy.*,scipy.*,sklearn.*,pandas.*,pyarrow.*,grpc.*,google.*]
follow_imports = skip
"""
"""What other libraries' types are makes no difference to our names, and takes most of the time."""


@pytest.mark.nightly  # mypy reads all of torch's users for 8 s; `make check` has the types of our own code
def test_a_strict_type_checker_knows_all_public_names(tmp_path: Path):
    pytest.importorskip("torch")
    pytest.importorskip("mypy")
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

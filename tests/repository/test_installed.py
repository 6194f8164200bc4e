"""The wheel in its own environment, used from a folder whose files have the names of modules that we import."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.tree import ROOT

pytest.importorskip("torch")
pytest.importorskip("setuptools")
UV = Path(sys.executable).with_name("uv")
TOKEN = "a-long-random-word"
OURS = ("server", "worker", "sharder")
NAMES = (*OURS, "utils", "queue", "tasks", "random", "numpy")
"""Of the user's files."""
AT_NIGHT = pytest.mark.nightly
"""A process of what was just installed compiles all its loops, and torch is loaded from new: ten seconds."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the source."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("paceline", *OURS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    how = ["--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", out]
    subprocess.run([UV, "build", "--wheel", *how, source], check=True)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and the libraries that are here."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(
        sysconfig.get_paths()["purelib"]
    )  # a .pth there is not read, so no Paceline
    how = ["--quiet", "--python", place / "bin/python", "--no-deps", "--no-index"]
    subprocess.run([UV, "pip", "install", *how, wheel], check=True)
    return place / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's: an import of one of its files says so."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the user was executed')\n")
    return tmp_path


def test_installing_puts_one_name_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        names = {Path(name).parts[0] for name in found.namelist()}
        assert {f"paceline/{part}/__main__.py" for part in OURS} <= {*found.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"paceline"}


TASK = """
import neighbour

SETTINGS = {"batch_size": 16}

def data(path):
    return neighbour.rows()

def model():
    import random

    from nets import net

    random.random()
    return net()
"""


@AT_NIGHT
def test_a_run_trains_among_files_with_our_names_and_its_task_alone_imports_the_modules_beside_it(
    fresh: Path, folder: Path
) -> None:
    """At the top of the task's file, and in its functions, in any folder."""
    tasks = folder / "mine"
    tasks.mkdir()
    for file in folder.glob("*.py"):
        shutil.copy(file, tasks)
    (tasks / "task.py").write_text(TASK)
    (tasks / "nets.py").write_text("import torch\n\ndef net():\n    return torch.nn.Linear(2, 2)\n")
    (tasks / "neighbour.py").write_text(
        "import numpy\n"
        "from paceline.extend import Dataset, Labelled\n\n"
        "def rows():\n"
        "    features = numpy.arange(400, dtype='float32').reshape(200, 2) % 7\n"
        "    return Dataset(train=Labelled(features, (features[:, 0] > 3).astype('int64')))\n"
    )
    done = said([fresh / "paceline", "run", "mine/task.py", "-w", "1", "-s", "1", "--epochs", "1", "--json"], folder)
    assert json.loads(done)["metrics"]["validation_accuracy"] > 0.5


@AT_NIGHT
def test_a_script_that_trains_imports_none_of_the_files_beside_it(fresh: Path, folder: Path) -> None:
    """A linear model, whose processes need no torch."""
    rows = np.random.default_rng(0).normal(size=(300, 4))
    lines = (f"{1 if row.sum() > 0 else -1} " + " ".join(f"{k + 1}:{row[k]:.3f}" for k in range(4)) for row in rows)
    (folder / "rows.svm").write_text("\n".join(lines))
    script = folder / "script.py"
    script.write_text(
        "import paceline\n"
        "data = {'path': 'rows.svm', 'test': 0.2}\n"
        "result = paceline.train('svm', show=None, updates='sparse', workers=1, servers=1, epochs=1, data=data)\n"
        "print(paceline.__file__, result.metrics['test_accuracy'])\n"
    )
    where, accuracy = said([fresh / "python", script], folder).split()[-2:]
    assert where.startswith(str(fresh.parent))
    assert float(accuracy) > 0.5


def said(command: list[Path | str], folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""examples/notebook.ipynb trains, by nbclient where that is installed; examples/coming_from trains in lock-step."""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from paceline.launch.folder.run_folder import RunFolder
from tests.support.commands import paceline, python
from tests.support.tree import ROOT

pytest.importorskip("torch")
BOOK = ROOT / "examples/notebook.ipynb"
PLAIN = ROOT / "examples/scripts/cnn_plain.py"
MOST = 6
"""Lines that may be new."""
IN_CELLS = """
import linecache, json, sys
for number, cell in enumerate(json.load(open(sys.argv[1])), 1):
    name = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    exec(compile(cell, name, "exec"), sys.modules["__main__"].__dict__)
"""
IN_JUPYTER = """
import json, sys, nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(open(sys.argv[1]))]
book = nbformat.v4.new_notebook(cells=cells)
NotebookClient(book, kernel_name="python3").execute()
print("".join(output.get("text", "") for cell in book.cells for output in cell.outputs))
"""
HAS_JUPYTER = all(importlib.util.find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))


def cells() -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(BOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_the_loop_in_plain_torch_gives_way_to_six_lines_at_most() -> None:
    plain = PLAIN.read_text().replace("args.", "").splitlines()
    _, *rest, _, _ = cells()  # numbers of epochs and seed before, looks at what came out behind
    new = [line for cell in rest for line in cell.splitlines() if line.strip() and line not in plain]

    assert len(new) <= MOST, "\n".join(new)


@pytest.mark.parametrize(
    "way",
    [
        IN_CELLS,
        pytest.param(
            IN_JUPYTER, marks=[pytest.mark.skipif(not HAS_JUPYTER, reason="no nbclient"), pytest.mark.nightly]
        ),
    ],
)
def test_the_cells_train(way: str, tmp_path: Path) -> None:
    first, *rest, _, _ = cells()
    short = [first.replace("10, 0", "2, 0"), *rest, "print(accuracy(), result)"]
    assert "epochs, seed = 2, 0" in short[0]
    (tmp_path / "cells.json").write_text(json.dumps(short))
    (tmp_path / "cells.py").write_text(way)
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = python("cells.py", "cells.json", cwd=tmp_path, patience=240, PYTHONPATH=paths)

    assert done.returncode == 0, done.stderr[-4000:]
    accuracy, _, result = done.stdout.strip().splitlines()[-1].partition(" ")
    assert float(accuracy) > 0.5
    assert result.startswith("Result('runs/")
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


pytest.importorskip("torch")
SCRIPT = ROOT / "examples/coming_from/ddp.py"


def test_the_script_that_was_moved_from_ddp_trains_under_bsp(tmp_path: Path) -> None:
    words = ("-w", "2", "-s", "1", "--policy", "bsp", "--set", "epochs=4", "--run", "ddp")

    done = paceline("launch", *words, SCRIPT, cwd=tmp_path, patience=280)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    printed = re.findall(r"accuracy (\S+)", done.stdout)
    assert len(printed) == 1, "worker 0 alone prints"
    assert float(printed[0]) > 0.8
    clocks = {worker["clock"] for worker in RunFolder(tmp_path / "runs" / "ddp").last_status()["workers"]}
    assert len(clocks) == 1, "in lock-step, both have pushed as often"

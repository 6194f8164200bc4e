"""The lines of the docs that inflict faults, run as a reader would: each fault happens, and nothing is lost. At night,
since each starts a dozen processes that load torch; tests/runs/test_processes.py has the same kills by day."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT
from tools.doc_blocks.blocks import blocks
from tools.doc_blocks.running import runnable
from tools.prose.pages import read_page

LINES = [
    runnable(block)
    for block in blocks(read_page(ROOT / "docs/failures/promises-and-failures.md"))
    if block.language == "sh" and "--fault" in block.text
]


def test_the_page_has_a_line_for_what_it_promises() -> None:
    assert len(LINES) == 4


@pytest.mark.nightly
@pytest.mark.parametrize("lines", LINES)
def test_each_promise_holds_on_the_line_that_shows_it(lines: str, tmp_path: Path) -> None:
    faults = [fault for text in re.findall(r'--fault "(.*?)"', lines) for fault in text.split("; ")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", lines],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert not done.returncode, done.stdout
    for fault in faults:
        assert re.search(rf"{re.escape(fault)}: at .* s, the process ran again", done.stdout), done.stdout
    assert "\nLost: nothing; " in done.stdout
    assert "bsp" not in lines or done.stdout.endswith("the same bits\n")

"""examples/coming_from: the script that was moved from DDP trains as the page says, with two workers in lock-step."""

import re
from pathlib import Path

import pytest

from paceline.launch.folder.run_folder import RunFolder
from tests.support.commands import paceline
from tests.support.tree import ROOT

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

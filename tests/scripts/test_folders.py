"""Folders that a script makes in each of its processes."""

from pathlib import Path

import pytest

from tests.support.commands import paceline

pytest.importorskip("torch")
SCRIPT = """
import os, torch, paceline

os.makedirs("experiment")
model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.1), model)
for step in paceline.steps(2):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def test_a_folder_that_is_there_already_ends_the_run_at_once_and_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "train.py", cwd=tmp_path)

    assert ended.returncode == 78, ended.stderr
    assert "train.py, line 4: FileExistsError: [Errno 17] File exists: 'experiment'. Every process" in ended.stderr
    assert "os.makedirs(folder, exist_ok=True)" in ended.stderr
    assert "starting it again" not in ended.stderr

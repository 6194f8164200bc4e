"""A run that has finished, but not well, ends with an exit code that says so, and so does the same command again."""

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, Incomplete, ScriptFailed
from tests.support.commands import paceline

pytest.importorskip("torch")

SCRIPT = """
import os, sys, torch, paceline

model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.01), model)
for step in paceline.steps(20):
    IN_LOOP
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
AFTER
"""
DIES = "if paceline.rank() == 1 and step == 5: os._exit(3)"
FAILS = "if paceline.rank() == 1: sys.exit(3)"


@pytest.mark.parametrize(
    ("in_loop", "after", "code", "told"),
    [
        ("pass", FAILS, ScriptFailed.exit_code, "every worker has finished its steps; the script of worker-1 failed"),
        ("pass", "os._exit(3)", ScriptFailed.exit_code, "has finished its steps; the script of worker-0"),
        (DIES, "", Incomplete.exit_code, "15 of all workers' 40 steps were left out; worker-1 could not go on"),
    ],
    ids=["exit", "hard exit", "in vain"],
)
def test_what_goes_wrong_after_training_or_for_one_worker_is_an_exit_code(
    tmp_path: Path, in_loop: str, after: str, code: int, told: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("IN_LOOP", in_loop).replace("AFTER", after))
    soon = [word for each in ("restarts=1", "lease=1", "heartbeat=0.2") for word in ("--set", each)]
    words = ("launch", "-w", "2", "-s", "1", "--policy", "bsp", *soon, "--run", "r", "train.py")

    ended, again = paceline(*words, cwd=tmp_path), paceline(*words, cwd=tmp_path)

    assert ended.returncode == code, ended.stdout + ended.stderr
    assert told in ended.stdout
    assert (tmp_path / "runs/r/models/last.safetensors").exists()
    assert again.returncode == code
    assert "is finished already" in again.stdout
    assert told in again.stdout


@pytest.mark.parametrize(
    ("first", "words"),
    [("import no_such_library", "Install it for the Python that runs the workers"), ("x = (1, ", "SyntaxError")],
)
def test_what_another_start_would_only_repeat_ends_a_script_with_the_code_of_a_wrong_setting(
    tmp_path: Path, first: str, words: str
) -> None:
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text(f"{first}\n")

    ended = paceline("launch", "-w", "1", "-s", "1", "--run", "r", "train.py", cwd=tmp_path)

    assert ended.returncode == ConfigError.exit_code
    assert "worker-0 ended with exit code 78" in ended.stderr
    assert words in ended.stderr

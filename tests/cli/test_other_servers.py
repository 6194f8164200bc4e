"""A run goes on with another number of servers, in real processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from paceline.launch.folder.run_folder import RunFolder
from tests.support.commands import paceline

QUICK = ("digits", "-w", 2, "--set", "checkpoint.every=0.2s")


def model(folder: Path, run: str) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in load_file(folder / f"runs/{run}/models/last.safetensors").items()}


def test_lock_step_with_more_servers_in_the_second_half_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = paceline("run", *QUICK, "--policy", "bsp", "-s", 2, "--epochs", 4, "--run", "whole", cwd=tmp_path)
    first = paceline("run", *QUICK, "--policy", "bsp", "-s", 2, "--epochs", 2, "--run", "moved", cwd=tmp_path)
    second = paceline("run", *QUICK, "--policy", "bsp", "-s", 3, "--epochs", 4, "--run", "moved", cwd=tmp_path)

    assert [whole.returncode, first.returncode, second.returncode] == [0, 0, 0], second.stderr
    assert "the model is cut again, for 3 servers in place of 2" in second.stdout
    assert model(tmp_path, "whole") == model(tmp_path, "moved")


@pytest.mark.parametrize("servers", [1, 3])
def test_servers_that_were_left_at_several_moments_are_made_even_first(servers: int, tmp_path: Path) -> None:
    slow = ("--policy", "asp", "--slow", "all=2x")
    first = paceline("run", *QUICK, *slow, "-s", 2, "--epochs", 6, "--run", "one", cwd=tmp_path)
    newest = sorted((tmp_path / "runs/one/server-1").glob("snapshot-*"))[-2:]
    for file in newest:
        file.unlink()

    second = paceline("run", *QUICK, *slow, "-s", servers, "--epochs", 12, "--run", "one", cwd=tmp_path)

    assert [first.returncode, second.returncode] == [0, 0], second.stdout + second.stderr
    assert "are of several moments" in second.stdout
    assert f"for {servers} server{'s' * (servers > 1)} in place of 2" in second.stdout
    assert RunFolder(tmp_path / "runs/one").settings().servers == servers
    audit = paceline("audit", "one", cwd=tmp_path)
    assert (audit.returncode, "Nothing is wrong" in audit.stdout) == (0, True), audit.stdout


def test_a_stop_while_they_are_made_even_is_a_stop(tmp_path: Path) -> None:
    slow = ("--policy", "asp", "--slow", "all=5x", "--epochs", 4)
    paceline("run", *QUICK, *slow[:-1], 2, "-s", 2, "--run", "one", cwd=tmp_path)
    for file in sorted((tmp_path / "runs/one/server-1").glob("snapshot-*"))[-2:]:
        file.unlink()
    words = [sys.executable, "-m", "paceline.cli", "run", *map(str, QUICK), *map(str, slow), "-s", "3", "--run", "one"]

    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if "went on from its snapshot" in line:
                run.send_signal(signal.SIGTERM)
    assert run.returncode == 143, lines
    assert not any("cut again" in line for line in lines), lines
    assert RunFolder(tmp_path / "runs/one").settings().servers == 3

"""examples/scripts: what people have, and the few lines that make workers of it. Each trains, small, with two workers."""

import difflib
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

import paceline
from tests.support import commands
from tests.support.tree import ROOT

pytest.importorskip("torch")
SCRIPTS = ROOT / "examples/scripts"
PAGES = (ROOT / "docs/start/own-script.md", ROOT / "docs/coming-from/lightning.md")
PAIRS = sorted(path.name.removesuffix("_plain.py") for path in SCRIPTS.glob("*_plain.py"))
MOST = 6
"""Lines that may change."""


def python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a separate process, which ends well."""
    done = commands.python(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def launched(name: str, *arguments: object, cwd: Path, policy: str = "ssp:3") -> paceline.Result:
    """The run of two workers, which ended well."""
    launch = ("-m", "paceline.cli", "launch", "-w", 2, "-s", 1, "--policy", policy, "--run", name)
    python(*launch, SCRIPTS / f"{name}.py", *arguments, cwd=cwd)
    return paceline.Result(cwd / "runs" / name)


def lines(name: str) -> list[str]:
    return (SCRIPTS / f"{name}.py").read_text().splitlines()


# the diffs
@pytest.mark.parametrize("name", PAIRS)
def test_at_most_six_lines_change(name: str) -> None:
    """Blank lines aside."""
    changed = [
        line for line in difflib.ndiff(lines(f"{name}_plain"), lines(name)) if line[0] == "+" and line[2:].strip()
    ]

    assert 0 < len(changed) <= MOST, "\n".join(changed)


@pytest.mark.parametrize("name", PAIRS)
def test_a_page_shows_the_lines_that_change(name: str) -> None:
    before, after = lines(f"{name}_plain"), lines(name)
    names = (f"examples/scripts/{name}_plain.py", f"examples/scripts/{name}.py")
    diff = "\n".join(line for line in difflib.unified_diff(before, after, *names, n=0, lineterm="") if line[:2] != "@@")

    assert f"```diff\n{diff}\n```" in "".join(page.read_text() for page in PAGES)


def test_the_cnn_is_the_script_of_56_lines() -> None:
    assert len(lines("cnn_plain")) == 56


# alone: plain torch
@pytest.mark.nightly  # `make docs-blocks` runs it, too
def test_the_cnn_trains_alone_as_its_original_does(tmp_path: Path) -> None:
    plain = python(SCRIPTS / "cnn_plain.py", "--epochs", 2, cwd=tmp_path).stdout
    alone = python(SCRIPTS / "cnn.py", "--epochs", 2, cwd=tmp_path).stdout

    for printed in (plain, alone):
        assert float(printed.splitlines()[-1].split()[-1]) > 0.8
    assert (tmp_path / "cnn.pt").exists()


# launched
@pytest.mark.nightly  # `make docs-blocks` launches it, too
def test_the_cnn_is_launched(tmp_path: Path) -> None:
    result = launched("cnn", "--epochs", 3, cwd=tmp_path)

    assert result.metrics["validation_accuracy"] > 0.8
    assert (tmp_path / "cnn.pt").exists()


@pytest.mark.nightly  # as the next one a training by two processes with torch; by day the CNN's is the one
def test_the_transformer_with_dict_batches_is_launched(tmp_path: Path) -> None:
    result = launched("transformer", "--epochs", 2, cwd=tmp_path)

    assert result.metrics["validation_accuracy"] > 0.3  # of 8 letters
    assert result.history[-1].metrics["validation_loss"] < 1.9


@pytest.mark.nightly
def test_the_gpt_that_draws_its_own_batches_is_launched(tmp_path: Path) -> None:
    result = launched("nanogpt", "--steps", 60, cwd=tmp_path)

    log = (result.folder / "logs/worker-0.log").read_text().splitlines()
    (last,) = [line for line in log if line.startswith("val loss")]
    assert float(last.split()[-1]) < 3.5  # 4.4 at first


def test_a_loop_with_accelerate_is_launched(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    result = launched("accelerate_loop", "--epochs", 2, cwd=tmp_path)

    log = (result.folder / "logs/worker-0.log").read_text().splitlines()
    (last,) = [line for line in log if line.startswith("last")]
    assert float(last.split()[-1]) > 0.7


# Lightning
def needs_lightning() -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed: pip install 'paceline[lightning]'")


def test_a_lightning_trainer_is_launched(tmp_path: Path) -> None:
    needs_lightning()

    result = launched("lightning_trainer", "--epochs", 3, cwd=tmp_path)

    logs = [(result.folder / f"logs/worker-{rank}.log").read_text().splitlines() for rank in (0, 1)]
    for log in logs:
        (last,) = [line for line in log if line.startswith("last")]
        assert float(last.split()[1].strip(",")) > 0.8
    assert len(list(tmp_path.glob("lightning_logs/*"))) == 1  # of worker 0 alone
    assert list(tmp_path.rglob("*.ckpt"))
    assert {json.loads(line)["phase"] for line in (result.folder / "metrics.jsonl").read_text().splitlines()} >= {
        "finished"
    }

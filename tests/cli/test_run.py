"""`paceline run` with real servers and workers: from a command line to a model that plain torch loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import Diverged
from tests.support.commands import paceline
from tests.support.nights import some
from tests.support.private_files import open_to_others

pytest.importorskip("torch")

TASK = ("digits", "-w", "2", "-s", "2", "--policy", "bsp", "--run", "short")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def first(place: Path) -> subprocess.CompletedProcess[str]:
    """A short run, which the tests below look at."""
    return paceline("run", *TASK, "--epochs", "3", cwd=place)


def test_a_run_trains_and_its_last_line_is_the_test_accuracy(first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    name, accuracy = first.stdout.splitlines()[-1].rsplit(" ", 1)
    assert name == "test accuracy"
    assert float(accuracy) > 0.5


def test_a_run_that_learns_has_no_warnings(first: subprocess.CompletedProcess[str], place: Path) -> None:
    lines = (place / "runs/short/metrics.jsonl").read_text().splitlines()
    assert "warning" not in first.stdout
    assert json.loads(lines[-1])["warnings"] == []


def test_nobody_else_can_read_what_a_run_has_made(first: subprocess.CompletedProcess[str], place: Path) -> None:
    run = place / "runs/short"

    assert open_to_others(place / "runs") == []
    made = {path.name for path in run.iterdir() if path.is_dir()}
    assert {"models", "logs", "server-0", "server-1"} <= made
    for name in made - {"shards"}:
        assert (run / name).stat().st_mode & 0o777 == 0o700, name
    assert (run / "token").stat().st_mode & 0o777 == 0o600


def test_a_run_in_which_nothing_is_wrong_has_no_cause(first: subprocess.CompletedProcess[str], place: Path) -> None:
    assert "cause:" not in first.stdout
    assert json.loads((place / "runs/short/run.json").read_text())["causes"] == []


def test_a_slow_worker_is_named_while_the_run_trains_and_at_its_end(place: Path) -> None:
    words = ("digits", "-w", "2", "-s", "1", "--policy", "bsp", "--epochs", "3", "--slow", "1=5x", "--run", "slow")
    run = paceline("run", *words, cwd=place)
    lines = run.stdout.splitlines()
    told = [
        number for number, line in enumerate(lines) if line.startswith("cause:") and "worker-1, whose steps" in line
    ]
    assert len(told) == 2, run.stdout + run.stderr
    assert lines[told[0]].endswith("Now: paceline set slow policy=asp")
    elapsed = [float(line.split("elapsed ")[1].split(" s")[0]) for line in lines[: told[0]] if "elapsed" in line]
    assert max(elapsed) < 10
    assert any(line.startswith("Next, try policy=asp: paceline run") for line in lines)

    found = json.loads(paceline("doctor", "slow", "--json", cwd=place).stdout)
    assert [each["cause"] for each in found["causes"]] == ["slow_worker"]
    assert {each["policy"] for each in found["predicted"]} == {"asp", "ssp:3", "backup:1"}


def test_three_lines_of_plain_torch_load_the_model(
    first: subprocess.CompletedProcess[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from paceline.tasks.builtin import digits

    monkeypatch.chdir(place)
    model = digits.model()
    lines = [line[4:] for line in first.stdout.splitlines() if line.startswith("    ")]
    exec("\n".join(lines), {"model": model})

    assert len(lines) == 3
    kept = load_file("runs/short/models/last.safetensors")
    assert all(kept[name].equal(value) for name, value in model.state_dict().items())


def test_the_metrics_tell_the_whole_run(first: subprocess.CompletedProcess[str], place: Path) -> None:
    lines = [json.loads(line) for line in (place / "runs/short/metrics.jsonl").read_text().splitlines()]

    assert lines[-1]["phase"] == "finished"
    assert lines[-1]["examples"] >= lines[-1]["budget"] > 0
    assert all("wait_seconds" in worker["figures"] for worker in lines[-1]["workers"])


def test_status_tells_the_accuracy_of_the_newest_run(first: subprocess.CompletedProcess[str], place: Path) -> None:
    found = json.loads(paceline("status", "--json", cwd=place).stdout)

    assert found["finished"]
    assert f"test accuracy {found['accuracy']:.4f}" == first.stdout.splitlines()[-1]


def test_report_writes_a_page_on_the_newest_run_and_refuses_what_is_none(
    first: subprocess.CompletedProcess[str], place: Path
) -> None:
    done, wrong = paceline("report", "-o", "page.html", cwd=place), paceline("report", "runs", cwd=place)

    assert (done.returncode, done.stdout, done.stderr) == (0, "The report is page.html.\n", "")
    assert first.stdout.splitlines()[-1] in (place / "page.html").read_text()
    assert wrong.returncode == 64
    assert "runs is no folder of a run (it has no config.yaml), and there is no run 'runs'" in wrong.stderr


def test_a_run_that_can_not_learn_ends_soon_says_why_and_what_to_try(place: Path) -> None:
    run = paceline(
        "run", "digits", "-w", "2", "-s", "1", "--run", "wild", "--set", "optimizer.lr=1e9", "--json", cwd=place
    )
    found = json.loads(run.stdout)

    assert (run.returncode, found["exit_code"]) == (Diverged.exit_code, Diverged.exit_code)
    assert [each["settings"] for each in found["warnings"] if each["kind"] == "not_finite"] == [["optimizer.lr=0.1"]]
    assert "no worker has a finite gradient any more" in found["reason"]
    assert "it went back 3 times, to a learning rate x 0.125 (divergence.rollbacks=3)" in found["reason"]
    assert "steps in a row had no finite gradient" in run.stderr
    assert "warning: " in paceline("status", "wild", cwd=place).stdout
    again = paceline("run", "runs/wild/config.yaml", cwd=place)
    assert again.returncode == Diverged.exit_code
    assert "is finished already" in again.stdout
    assert "The run gave up (exit code 76)" in again.stdout


@pytest.mark.parametrize("policy", some(["bsp", "asp"], ["asp"]))
def test_a_run_with_a_huge_rate_goes_back_to_good_weights_and_learns_at_a_lower_one(policy: str, place: Path) -> None:
    asked = ("optimizer.lr=1e3", "epochs=6", "heartbeat=0.2", "divergence.factor=1e-4")
    sets = [word for setting in asked for word in ("--set", setting)]
    name = ("-w", "2", "-s", "2", "--policy", policy, "--run", f"absurd-{policy}")
    run = paceline("run", "digits", *name, *sets, "--json", cwd=place)
    found = json.loads(run.stdout)

    assert (run.returncode, found["reason"]) == (0, "the budget of epochs is spent")
    (back,) = [each for each in found["warnings"] if each["kind"].startswith("rolled_back")]
    assert "the run went back to version " in back["said"]
    assert "learning rate x 0.0001; 1 of 3" in back["said"]
    assert back["said"] in run.stderr
    assert found["accuracy"] > 0.8


@pytest.mark.nightly  # imports torch from new; test_run_forkers.py has the sharing
@pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux")
def test_a_bad_file_that_imports_torch_is_refused_by_processes_that_share_one_import(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import os\nimport torch\nimport numpy as np\nfrom paceline.extend import Dataset, Labelled\n"
        "with open('loads', 'a') as file:\n    print(os.getpid(), os.getppid(), file=file)\n"
        "print('hello from the file')\n"
        "def data(path):\n    return Dataset(Labelled(np.ones((60, 4), np.float32), np.arange(60) % 3))\n"
        "def model():\n    return torch.nn.Linear(4, 2)\n"
    )
    line = [sys.executable, "-P", "-m", "paceline.cli", "run", "own.py", "-w", "2"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        _, stderr = first.communicate(timeout=110)
    loads = [text.split() for text in (tmp_path / "loads").read_text().splitlines()]

    assert (first.returncode, stderr.count("hello from the file")) == (78, 1), stderr
    assert "The labels go from 0 to 2, but the model has 2 outputs" in stderr
    assert len({pid for pid, _ in loads}) == 3, "for the settings, by the sharder and by the check, and nobody else"
    assert len({parent for _, parent in loads}) == 1, "all forked from one process"
    assert str(first.pid) not in {pid for pid, _ in loads}, "the first process loads no torch"
    assert not list((tmp_path / "runs").glob("*/"))


@pytest.mark.skipif(sys.platform != "linux", reason="fork is for Linux")
def test_a_file_that_imports_torch_and_can_not_be_loaded_is_told_as_ever(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import torch\n\nprint(torch.no_such_thing)\n")

    ended = paceline("run", "own.py", cwd=tmp_path)

    assert ended.returncode == 78
    assert ended.stderr.startswith(
        "paceline: ConfigError: The task file can't be loaded: own.py, line 3: AttributeError"
    )
    assert not (tmp_path / "runs").exists()

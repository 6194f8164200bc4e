"""How processes start: what they can get, and what is missing, from their first moment on."""

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.worker.command_line import ToldCheck, ToldCompute, ToldEvaluator, ToldLaunched, ToldWorker

SCRIPT = """
import os, runpy, signal, sys
own = os.getpid()
os.getpid = lambda: 1  # as in a container, where the kernel lets the first process ignore SIGTERM


class ToldToStop:
    def find_spec(self, name, path=None, target=None):
        if name in ("typer", "paceline.sharder.sharding"):
            os.kill(own, signal.SIGTERM)


sys.meta_path.insert(0, ToldToStop())
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__")
"""


@pytest.mark.parametrize(
    "module",
    [
        "paceline.server",
        "paceline.worker",
        "paceline.worker.evaluator",
        "paceline.sharder",
        "paceline_k8s.autostop",
    ],
)
def test_a_containers_first_process_can_be_stopped_while_it_loads(module: str):
    done = subprocess.run([sys.executable, "-c", SCRIPT, module, "--help"], capture_output=True, text=True, check=False)

    assert done.returncode == 143, done.stderr


def test_a_containers_process_can_kill_itself():
    script = "import os; own = os.getpid; os.getpid = lambda: 1; import paceline.base.first_process; os.kill(own(), 9)"

    done = subprocess.run([sys.executable, "-c", script], check=False)

    assert done.returncode == 137


@pytest.mark.parametrize(
    ("told", "by_rank"), [(ToldWorker, True), (ToldLaunched, True), (ToldEvaluator, False), (ToldCheck, False)]
)
def test_only_who_has_a_rank_is_said_to_get_its_gpu_by_it(told: type[ToldCompute], by_rank: bool):
    assert ("by rank" in str(told.model_fields["device"].description)) == by_rank


@pytest.mark.parametrize("module", ["paceline.worker", "paceline.worker.evaluator"])
def test_a_dense_run_without_torch_says_which_image_has_it(module: str, tmp_path: Path):
    hidden = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_module({module!r}, run_name='__main__')"
    options = ["--set", "task=digits", "--shards", tmp_path, "--servers", "localhost:1"]
    options += ["--models", tmp_path] if module == "paceline.worker.evaluator" else []

    done = subprocess.run([sys.executable, "-c", hidden, *options], capture_output=True, text=True, check=False)

    assert done.returncode == 78
    assert "needs torch" in done.stderr
    assert "paceline-worker-slim" in done.stderr
    assert "Traceback" not in done.stderr

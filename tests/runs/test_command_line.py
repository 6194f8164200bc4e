"""What a process gets: one value, from which its options are made, its command line and its JSON are written; and how it
starts: what is missing, and that it can be stopped from its first moment on."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from paceline.base.variables import TLS
from paceline.processes.command_line import Arguments, ProcessArguments, options_of
from paceline.server.command_line import ToldServer
from paceline.sharder.command_line import ToldShardServer
from paceline.worker.command_line import ToldCheck, ToldCompute, ToldEvaluator, ToldLaunched, ToldWorker

KINDS = [ToldWorker, ToldEvaluator, ToldCheck, ToldServer, ToldShardServer]
REQUIRED = {
    ToldWorker: {"shards": "shards", "servers": "a:1,b:2"},
    ToldLaunched: {"shards": "shards", "servers": "a:1", "config": "run.yaml"},
    ToldEvaluator: {"shards": "shards", "servers": "a:1", "models": "models"},
    ToldCheck: {"shards": "shards", "config": "run.yaml"},
    ToldServer: {"folder": "state"},
    ToldShardServer: {"out": "shards"},
}


def read(kind: type[Arguments], words: list[str]) -> Arguments:
    """What a process makes of a command line."""
    heard: list[Arguments] = []
    app = typer.Typer()
    app.command()(options_of(kind)(heard.append))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return heard[0]


def another(kind: type[Arguments], name: str) -> Any:
    """A value for the field that is not its default."""
    if name == "settings":
        return ("policy.bound=3", "epochs=2")
    annotation = kind.model_fields[name].annotation
    return 7 if annotation is int else True if annotation is bool else "another/one"


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_line_gives_back_what_it_was_written_from(kind: type[Arguments]) -> None:
    plain = kind.model_validate(REQUIRED[kind])
    assert read(kind, plain.arguments()) == plain
    assert len(plain.arguments()) == 2 * len(REQUIRED[kind])  # what is not said is as usual

    full = kind.model_validate({name: another(kind, name) for name in kind.model_fields})
    assert read(kind, full.arguments()) == full


@pytest.mark.parametrize("kind", KINDS)
def test_help_says_something_of_each_option(kind: type[Arguments]) -> None:
    app = typer.Typer()
    app.command()(options_of(kind)(lambda told: None))
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for name, field in kind.model_fields.items():
        option = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        assert option in shown
        assert field.description is None or field.description[:40] in shown


def test_json_gives_back_what_it_was_written_from_with_paths_for_any_folder(tmp_path: Path) -> None:
    told = ToldLaunched(config=Path("run.yaml"), shards=tmp_path, servers="a:1", rank=3, residuals=Path("owed"))

    found = ToldLaunched.model_validate(json.loads(told.json_text()))

    assert found == told.model_copy(update={"config": Path.cwd() / "run.yaml", "residuals": Path.cwd() / "owed"})


def test_the_folder_of_keys_is_the_environments_unless_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TLS, "/keys")
    for server in (read(ToldServer, ["--folder", "state"]), ToldServer(folder=Path("state"))):
        assert isinstance(server, ProcessArguments)
        assert server.tls == Path("/keys")
    assert "--tls" not in ToldServer(folder=Path("state")).arguments()  # children have the same environment
    words = read(ToldServer, ["--folder", "state", "--tls", "/others"]).arguments()
    assert words[words.index("--tls") + 1] == "/others"


def test_a_new_option_needs_one_declaration() -> None:
    class ToldMore(ToldServer):
        patience: float = 2.5

    assert read(ToldMore, ["--folder", "state", "--patience", "4"]) == ToldMore(folder=Path("state"), patience=4.0)
    command: Callable[..., None] = options_of(ToldMore)(lambda told: None)
    assert inspect.signature(command).parameters["patience"].default == 2.5


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
        "paceline_k8s.controller",
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

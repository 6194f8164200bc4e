"""`paceline launch`: a script of the user's own as the workers of a run, with real processes."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.settings.read_config import read_launch
from paceline.launch.supervise.processes import Printed
from paceline.launch.supervise.script_processes import script_environment
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.processors import processes_here
from paceline.settings.flags import Flags
from paceline.worker.command_line import ToldLaunched
from tests.support.commands import paceline, python
from tests.support.private_files import open_to_others
from tests.support.tree import ROOT

torch = pytest.importorskip("torch")

SCRIPT = """
import random, sys, numpy, torch, paceline
from torch.nn import functional
from sklearn.datasets import load_digits
from own_neighbour import scaled

print("arguments", sys.argv[1:])
features, labels = load_digits(return_X_y=True)
features, labels = torch.tensor(scaled(features), dtype=torch.float32), torch.tensor(labels)
order = torch.randperm(len(labels))
train, kept = order[300:], order[:300]
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.3), model)

def score():
    with torch.no_grad():
        outputs = model(features[kept])
    right = outputs.argmax(1) == labels[kept]
    return {"loss": functional.cross_entropy(outputs, labels[kept]), "accuracy": right.float().mean()}

paceline.evaluate(score, every=100)
for step in paceline.steps(300):
    rows = train[numpy.random.randint(0, len(train), 32)]
    optimizer.zero_grad()
    functional.cross_entropy(model(features[rows]), labels[rows]).backward()
    optimizer.step()
print("rank", paceline.rank(), "of", paceline.workers())
print("drew", rows[0].item(), random.randrange(1 << 30), torch.randint(1 << 30, ()).item())
"""


def launch(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return paceline("launch", *words, cwd=cwd, patience=240)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "own_neighbour.py").write_text("def scaled(values):\n    return (values - 5) / 8\n")
    return tmp_path


def test_a_script_trains_on_two_workers_and_is_scored_by_its_own_function(folder: Path) -> None:
    script = ["train.py", "--fast", "-w", "9"]
    ended = launch("-w", "2", "-s", "2", "--policy", "bsp", "--run", "mine", "--json", *script, cwd=folder)

    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["metrics"]["validation_accuracy"] > 0.9
    assert found["version"] >= 300
    assert "arguments ['--fast', '-w', '9']" in ended.stderr
    assert ended.stderr.count("rank 0 of 2") == 1
    assert "rank 1 of 2" not in ended.stderr
    assert "step 300 of 300" in ended.stderr  # not epochs and examples, which nobody knows
    assert found["steps"] == [300, 300]
    logs = [(folder / f"runs/mine/logs/worker-{rank}.log").read_text() for rank in (0, 1)]
    assert "rank 1 of 2" in logs[1]
    drawn = [re.search(r"drew (\d+) (\d+) (\d+)", log).groups() for log in logs]
    assert all(one != other for one, other in zip(*drawn, strict=True)), "workers draw other numbers"
    settings = RunFolder(folder / "runs/mine").settings()
    assert settings.is_script
    assert settings.optimizer.options["lr"] == 0.3
    assert {file.name for file in (folder / "runs/mine/models").iterdir()} == {"last.safetensors", "best.safetensors"}
    assert open_to_others(folder / "runs") == []
    again = launch(
        "--run", "mine", "-w", "2", "--policy", "bsp", "-s", "2", "train.py", "--fast", "-w", "9", cwd=folder
    )
    assert "is finished already" in again.stdout
    other = launch("--run", "mine", "-w", "2", "--policy", "asp", "-s", "2", "train.py", cwd=folder)
    assert other.returncode == ConfigError.exit_code
    assert "policy: 'bsp' before, 'asp' now" in other.stderr


def test_a_run_whose_scores_get_no_better_ends_well_when_its_patience_is_out(folder: Path) -> None:
    script = SCRIPT.replace("every=100", "every=5, patience=2").replace("return {", 'return {"accuracy": .5} or {')
    (folder / "train.py").write_text(script.replace("steps(300)", "steps(3000)"))

    ended = launch("-w", "2", "-s", "1", "--policy", "bsp", "--run", "mine", "--json", "train.py", cwd=folder)

    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert "2 scores in a row were no better" in found["reason"]
    assert found["version"] < 1000
    assert (folder / "runs/mine/models/last.safetensors").exists()


def test_a_name_alone_goes_on_with_what_the_script_was_launched_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    config, given = read_launch("train.py", ["--fast"], Flags(workers=3, servers=2, policy="ssp:3", run="one"))
    open_run(config, given=given)

    again = read_launch("train.py", [], Flags(run="one"))
    other = read_launch("train.py", ["--slow"], Flags(policy="asp", run="one"))
    fresh, _ = read_launch("train.py", [], Flags(run="one"), fresh=True)

    assert again == (config, given)
    assert open_run(*again[:1], given=again[1])[1] == config
    with pytest.raises(ConfigError) as refused:
        open_run(other[0], given=other[1])
    assert "arguments: ['--fast'] before, ['--slow'] now" in str(refused.value)
    assert "policy: 'ssp:3' before, 'asp' now" in str(refused.value)
    assert (fresh.servers, fresh.arguments) == (Config().servers, ())


def test_the_environment_says_how_many_workers_if_no_flag_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(folder / "train.py")
    assert read_launch(script, [])[0].workers == processes_here()
    monkeypatch.setenv("PACELINE_WORKERS", "7")
    assert (read_launch(script, [])[0].workers, read_launch(script, [], Flags(workers=2))[0].workers) == (7, 2)

    with pytest.raises(ConfigError, match="workers: got 0"):
        read_launch(script, [], Flags(workers=0))


@pytest.mark.parametrize("words", [["-m", "lab.runs_of.train"], ["lab/runs_of/train.py"]])
def test_a_script_in_a_package_imports_what_is_next_to_it_and_above(tmp_path: Path, words: list[str]) -> None:
    for name in ("lab/__init__.py", "lab/runs_of/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "lab/scaling.py").write_text("def scaled(values):\n    return (values - 5) / 8\n")
    script = SCRIPT.replace("from own_neighbour import", "from ..scaling import").replace("300)", "30)")
    (tmp_path / "lab/runs_of/train.py").write_text(f"{script}\nprint('package', __package__)\n")

    ended = launch("-w", "2", "-s", "1", "--run", "mine", *words, "--fast", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert "package lab.runs_of" in ended.stdout + ended.stderr
    assert RunFolder(tmp_path / "runs/mine").settings().task == "lab/runs_of/train.py"


def test_a_function_that_can_not_score_ends_the_run_at_once_with_its_line(folder: Path) -> None:
    script = SCRIPT.replace("    with torch.no_grad():", "    paceline.nothing\n    with torch.no_grad():")
    (folder / "train.py").write_text(script.replace("steps(300)", "steps(30000)"))  # the first score is not the last
    line = script.splitlines().index("    paceline.nothing") + 1

    ended = launch("-w", "1", "-s", "1", "--run", "mine", "train.py", cwd=folder)

    printed = ended.stdout + ended.stderr  # an error while nothing is learned yet, and then the run's last lines
    assert ended.returncode == ConfigError.exit_code
    assert f"failed at its first score, train.py, line {line}: AttributeError" in printed
    assert "starting it again" not in printed
    log = (folder / "runs/mine/logs/worker-0.log").read_text()
    assert "in score\n    paceline.nothing" in log
    assert "script_scorer.py" not in log, "our own lines help nobody"


def test_the_same_script_runs_alone_without_the_launcher(folder: Path) -> None:
    ended = python("train.py", cwd=folder)

    assert ended.returncode == 0, ended.stderr
    assert "rank 0 of 1" in ended.stdout
    assert "step 300 of 300: loss" in ended.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('nothing')\n", "train.py ended in worker-0 without training, and the run waits for each worker."),
        ("import torch\ntorch.ones(2) @ torch.ones(3)\n", 'train.py", line 2, in <module>'),
        ("import paceline\nfor epoch in paceline.epochs(2):\n    pass\n", "trains, but never called paceline.wrap"),
    ],
)
def test_a_script_that_can_not_train_ends_the_run_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "train.py").write_text(text)

    ended = launch("-w", "1", "-s", "1", "train.py", cwd=tmp_path)

    assert ended.returncode == ConfigError.exit_code
    assert told in ended.stderr
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("absent.py", None, "There is no Python file absent.py"),
        ("train.txt", "", "There is no Python file train.txt"),
        ("train.py", "def", "train.py, line 1 is not Python"),
        ("train.py", "import torch\ntorhc.ones(1)\n", "line 2: there is no name 'torhc'. Did you mean 'torch'?"),
    ],
)
def test_what_is_no_script_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError, match=r"script|Python file") as error:
        read_launch(name, [])
    assert told in str(error.value)


@pytest.mark.parametrize(
    "error", [b"Traceback (most recent call last):\n  File\n", b"script: ConfigError: bad.py, line 3: no\n"]
)
def test_lines_of_a_script_are_shown_once_and_neither_ours_nor_its_error(tmp_path: Path, error: bytes) -> None:
    log, shown = tmp_path / "worker-0.log", list[str]()
    log.write_bytes(b"from an earlier start\n")
    printed = Printed(log, shown.append)

    with log.open("ab") as file:
        file.write(b'{"process": "worker-0", "event": "joined"}\nepoch 0\n 10%|#\r100%|##########|\nhal')
    printed.tell()
    printed.tell()
    with log.open("ab") as file:
        file.write(b"f\n{'loss': 1}\nscript: prints this itself\n" + error)
    printed.tell()

    assert shown == ["epoch 0", "100%|##########|", "half", "{'loss': 1}", "script: prints this itself"]
    Printed(tmp_path / "absent.log", shown.append).tell()


def test_a_line_that_overwrites_itself_is_read_once_and_kept_short(tmp_path: Path) -> None:
    log, shown = tmp_path / "worker-0.log", list[str]()
    log.touch()
    printed = Printed(log, shown.append)
    for step in range(1000):
        with log.open("ab") as file:
            file.write(f"\r{step:4} of 1000".encode())
        printed.tell()
        assert len(printed._left) < 20
    with log.open("ab") as file:
        file.write(b"\ndone\r")
    printed.tell()
    with log.open("ab") as file:
        file.write(b"\n")
    printed.tell()

    assert shown == [" 999 of 1000", "done"]


def test_each_worker_sees_one_of_several_gpus() -> None:
    def seen(rank: int, device: str = "auto", **before: str) -> str | None:
        told = ToldLaunched(config=Path("a.yaml"), servers="a:1", rank=rank, device=device)
        found = script_environment(before, told)
        assert json.loads(found[CONNECT])["rank"] == rank
        return found.get("CUDA_VISIBLE_DEVICES")

    assert [seen(rank, CUDA_VISIBLE_DEVICES="4,6") for rank in range(3)] == ["4", "6", "4"]
    assert seen(1, CUDA_VISIBLE_DEVICES="5") == "5"
    assert seen(1, "cpu") == ""
    assert seen(1, "cuda:3") == "3"
    assert seen(0, "cuda:1", CUDA_VISIBLE_DEVICES="4,6") == "6", "of those that are visible"
    assert seen(0, "cuda:2", CUDA_VISIBLE_DEVICES="4,6") == "", "there is no third one: the process says so"
    assert seen(1, "cuda", CUDA_VISIBLE_DEVICES="4,6") == "4,6", "torch takes the first"


@pytest.mark.parametrize("call", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_a_breakpoint_in_a_worker_says_how_to_debug(tmp_path: Path, call: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n\n{call}\nprint(torch)\n")
    told = ToldLaunched(config=tmp_path / "config.yaml", servers="127.0.0.1:1")
    (tmp_path / "config.yaml").write_text("task: train.py\nworkers: 1\ndata: {source: script}\n")
    environment = script_environment(child_environment(1), told)

    done = python("-m", "paceline.worker.script", script, cwd=tmp_path, **environment)

    assert done.returncode == 78
    assert f"script: ConfigError: {script}, line " in done.stderr
    assert "a process of a run has no terminal. Debug a script alone, as plain torch: python SCRIPT.py" in done.stderr


def test_all_processes_of_all_machines_have_one_hash_seed_unless_the_user_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert child_environment(1)["PYTHONHASHSEED"] == "0"
    assert "ENV PYTHONHASHSEED=0 " in (ROOT / "docker/Dockerfile").read_text(), "pods have no launcher"

    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert child_environment(1)["PYTHONHASHSEED"] == "7"


def test_a_debugger_that_the_user_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    assert child_environment(1)["PYTHONBREAKPOINT"] == "paceline.processes.exits.refuse_breakpoint"

    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    assert child_environment(1)["PYTHONBREAKPOINT"] == "0"

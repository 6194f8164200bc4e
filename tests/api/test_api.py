"""Paceline from Python: scripts that train for real, what a run gives, and what is told of mistakes."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import paceline
from paceline.api.train import brief
from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError, DataError, PacelineError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.settings.read_config import complete
from paceline.settings.load_settings import load
from tests.support.commands import python
from tests.support.processes import TORCH, Process, eventually, forker_of
from tests.support.tree import ROOT

torch = pytest.importorskip("torch")
EXAMPLES = ROOT / "examples"
SMALL: dict[str, Any] = {"workers": 1, "servers": 1, "show": None}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, paceline.Result]:
    """What examples/train_digits.py printed, and its run opened again."""
    place = tmp_path_factory.mktemp("script")
    done = python(EXAMPLES / "train_digits.py", "4", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (place / "runs").iterdir()
    return done.stdout, paceline.Result(folder)


# train
def test_a_script_without_a_main_guard_trains_and_prints_its_accuracy(trained: tuple[str, paceline.Result]) -> None:
    printed, result = trained
    assert printed.splitlines()[-1].startswith(f"test accuracy {result.metrics['test_accuracy']:.4f}")
    assert result.metrics["test_accuracy"] > 0.8


def test_the_result_tells_every_epoch_and_what_the_policy_did(trained: tuple[str, paceline.Result]) -> None:
    _, result = trained
    assert result.history[-1].final
    assert result.history[-1].metrics == result.metrics
    assert {"mean", "max", "wait_seconds", "alpha"} == result.staleness.keys()
    assert 0 < result.staleness["mean"] <= result.staleness["max"]
    assert result.staleness["alpha"] == 1
    assert result.seconds > 0


@pytest.mark.nightly  # by day cli/test_run.py has one
def test_the_report_of_a_run_has_all_that_was_recorded(trained: tuple[str, paceline.Result], tmp_path: Path) -> None:
    _, result = trained

    page = result.report(tmp_path / "page.html").read_text()

    assert f"test accuracy {result.metrics['test_accuracy']:.4f}" in page
    for said in (
        "time of each worker by what it did",
        "staleness of each worker",
        "python ",
        "torch ",
        "received a step",
    ):
        assert said in page
    for lacks in ("older Paceline", "is damaged", "do not count", "do not tell"):
        assert lacks not in page


def test_the_model_is_the_one_that_was_scored(trained: tuple[str, paceline.Result]) -> None:
    from paceline.data.shards import open_shards
    from paceline.tasks.builtin import digits

    _, result = trained
    test = open_shards(result.folder / "shards").part("test")
    inputs, labels = digits.prepare(np.asarray(test.features), np.asarray(test.labels), None)
    found = (result.model(inputs).argmax(1) == labels).double().mean()
    assert not result.model.training
    assert float(found) == pytest.approx(result.metrics["test_accuracy"])
    assert not result.best_model.training


@pytest.mark.parametrize("ending", [".safetensors", ".pt2", ".pt", ".onnx"])
def test_an_export_gives_the_same_outputs(trained: tuple[str, paceline.Result], ending: str, tmp_path: Path) -> None:
    _, result = trained
    inputs = torch.randn(5, 64)
    found = outputs(result.export(tmp_path / "deep" / f"model{ending}"), inputs)
    assert np.allclose(found, result.model(inputs).detach().numpy(), atol=1e-5)


def outputs(path: Path, inputs: Any) -> Any:
    """What the file's model makes of them, without Paceline."""
    if path.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0]
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(inputs).detach().numpy()
    if path.suffix == ".pt":
        return torch.jit.load(path)(inputs).detach().numpy()
    from safetensors.torch import load_file

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model.load_state_dict(load_file(path))
    return model(inputs).detach().numpy()


def test_a_finished_run_is_returned_without_training_it_again(trained: tuple[str, paceline.Result]) -> None:
    _, result = trained
    before = (result.folder / "metrics.jsonl").read_bytes()
    again = paceline.train(
        "digits", workers=2, servers=2, policy={"name": "ssp", "bound": 3}, epochs=4, folder=result.folder
    )
    assert again.metrics == result.metrics
    assert (result.folder / "metrics.jsonl").read_bytes() == before


def test_other_settings_for_the_same_folder_are_refused(trained: tuple[str, paceline.Result]) -> None:
    _, result = trained
    with pytest.raises(ConfigError, match="bound: 3 before, 4 now"):
        paceline.train("digits", workers=2, servers=2, policy="ssp:4", epochs=4, folder=result.folder)


def test_an_unknown_ending_is_refused(trained: tuple[str, paceline.Result], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be \.safetensors \(weights\), \.pt2 .* or \.onnx"):
        trained[1].export(tmp_path / "model.h5")


def test_without_the_onnx_packages_the_error_says_what_to_install(
    trained: tuple[str, paceline.Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'paceline\[onnx\]'"):
        trained[1].export(tmp_path / "model.onnx")


# a model and its data
@pytest.mark.parametrize(
    ("first", "given", "said"),
    [
        (torch.nn.Linear, {}, r"the class Linear; give an object of that class: Linear\(\)"),
        (7, {"train": [1]}, r"of type int; expected a model \(torch.nn.Module\) with its data set train="),
        ("digits", {"train": [1]}, r"train= is for paceline.train\(model, .* The task digits has its own data"),
        ("digits", {"loss": len}, "loss= is for paceline.train"),
        (torch.nn.Linear(1, 1), {}, r"no training data\. Give it: train="),
        (torch.nn.Linear(1, 1), {"train": [1], "bound": 3}, "bound: there is no such setting"),
    ],
)
def test_a_model_without_data_and_a_task_with_some_are_told_apart(
    first: Any, given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        paceline.train(first, show=None, **given)
    assert not list(tmp_path.iterdir())


def test_the_result_of_a_script_needs_a_model_to_load_the_weights_into(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = torch.nn.Linear(2, 1)
    config = load(None, {"task": "Linear", "data": {"source": "script"}, "run": "one"})
    folder, _ = open_run(config, runs=tmp_path, given={"task": "Linear"})
    folder.models.mkdir()
    for which in ("last", "best"):
        save_file(
            {name: torch.ones_like(value) for name, value in model.state_dict().items()},
            folder.models / f"{which}.safetensors",
        )

    with pytest.raises(ConfigError, match=r"paceline\.Result\('.*one', model\); or load the weights into it"):
        _ = paceline.Result(folder.path).model
    result = paceline.Result(folder.path, model)
    assert repr(result) == f"Result({str(folder.path)!r}, metrics={{}})"
    assert result.model.weight.tolist() == [[1.0, 1.0]]
    assert not result.best_model.training
    assert model.weight.tolist() != [[1.0, 1.0]]
    result.load_into(model)
    assert model.weight.tolist() == [[1.0, 1.0]]
    wrapped = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    result.load_into(wrapped)
    assert wrapped.module.weight.tolist() == [[1.0, 1.0]]
    with pytest.raises(ConfigError, match=r"does not fit this model: .*Make it as you did for the run"):
        result.load_into(torch.nn.Linear(3, 1))
    with pytest.raises(ConfigError, match=r"from paceline.train\(model, ...\). Call torch.export on result.model"):
        result.export(tmp_path / "model.pt2")


def test_a_run_that_fails_raises_its_error_with_the_folder_of_the_logs(tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text("def data(path):\n    raise OSError('no disk')\n\n\ndef model():\n    pass\n")
    config = complete({"task": str(task), "workers": 1, "servers": 1, "run": "broken"})
    open_run(config, runs=tmp_path)[0].write_facts(exit_code=143)  # it has been started before, so its folder is kept
    with pytest.raises(DataError, match=r"(?s)OSError: no disk.*The logs are in .*/broken/logs\.") as caught:
        paceline.train(task, folder=tmp_path / "broken", **SMALL)
    assert caught.value.exit_code == 65


def test_a_run_that_never_started_raises_one_sentence_and_leaves_no_folder(tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text("def data(path):\n    raise OSError('no disk')\n\n\ndef model():\n    pass\n")
    with pytest.raises(DataError, match=r"broken.py, line 2: OSError: no disk$"):
        paceline.train(task, folder=tmp_path / "broken", **SMALL)
    assert not (tmp_path / "broken").exists()


def test_ctrl_c_ends_all_processes_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import paceline\n"
        "show = lambda line: print({'line': line}, flush=True)\n"
        "paceline.train('digits', workers=1, servers=1, epochs=100000, folder='runs/long', show=show)\n"
    )
    process = Process("script", [script], tmp_path, dict(os.environ), forker_of(TORCH))
    eventually(lambda: "'training" in process.text(), process.text)
    pids = RunFolder(tmp_path / "runs/long").facts()["pids"].values()
    process.send(signal.SIGINT)
    code = process.wait()
    assert code == -signal.SIGINT, process.text()
    assert "KeyboardInterrupt" in process.text()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimiser": {}}, "optimizer"),
        ({"optimizer": {"name": "adm"}}, "adam"),
        ({"policy": "spp"}, "ssp"),
        ({"workers": 0}, "workers"),
        ({"loop": "mine.py"}, "loop is no setting any more"),
        ({"folder": "runs/No Name"}, "a name has 1 to 63"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        paceline.train("digits", **settings)


def test_a_mistake_is_one_sentence_behind_the_callers_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def data(path): ...\ndef model(): ...\nx = undefined\n")
    for call, sentence in (("'digits', workers='x'", "workers: got 'x'"), ("'mine.py'", "mine.py, line 3: NameError")):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            subprocess.run(
                [sys.executable, "-c", f"import paceline\npaceline.train({call})"],
                cwd=tmp_path,
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        said = failed.value.stderr
        assert sentence in said.splitlines()[-1]
        assert (said.count("Traceback"), len(said.splitlines()) < 7) == (1, True), said


def test_a_mistake_in_a_loss_is_shown_without_what_led_to_it_in_here() -> None:
    def loss(outputs: Any, targets: Any) -> Any:
        return outputs / nothing  # type: ignore[name-defined]  # noqa: F821

    model, data = torch.nn.Linear(2, 2), (torch.zeros(8, 2), torch.zeros(8, dtype=torch.long))
    with pytest.raises(NameError, match="nothing") as raised:
        paceline.train(model, data, test=data, loss=loss, workers=1)

    assert [entry.name for entry in raised.traceback][1:] == ["called", "loss"]


def test_an_interrupt_is_one_line_behind_the_callers() -> None:
    @brief
    def stopped() -> None:
        raise KeyboardInterrupt("The run was stopped.")

    with pytest.raises(KeyboardInterrupt, match="The run was stopped") as raised:
        stopped()
    assert [entry.name for entry in raised.traceback][1:] == ["called"]


def test_a_notebook_is_told_that_its_loop_trains_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(CONNECT, raising=False)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert paceline.wrap(optimizer, model) is optimizer
    assert not capsys.readouterr().out

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())  # type: ignore[arg-type]
    assert paceline.wrap(optimizer, model) is optimizer
    said = capsys.readouterr().out
    assert "this notebook trains alone" in said
    assert "paceline.train(model, train=data" in said
    assert "paceline.launch(function, workers=2)" in said


def test_a_bug_keeps_its_cause() -> None:
    @brief
    def broken() -> None:
        raise PacelineError("a bug") from ZeroDivisionError()

    with pytest.raises(PacelineError) as raised:
        broken()

    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_module_without_a_file_is_no_task() -> None:
    with pytest.raises(ConfigError, match=r"Write data\(\) and model\(\) into a \.py file"):
        paceline.train(ModuleType("cell"))


def test_a_task_file_that_trains_when_it_is_loaded_is_refused(tmp_path: Path) -> None:
    task = tmp_path / "mine.py"
    task.write_text("import paceline\n\n\ndef data(path): ...\ndef model(): ...\npaceline.train(__file__)\n")
    with pytest.raises(ConfigError, match=r"line 6: .*Put the call under: if __name__ == \"__main__\":"):
        paceline.train(task)


# results
def test_staleness_is_summed_up_over_the_workers(tmp_path: Path) -> None:
    folder, _ = open_run(Config(run="one"), runs=tmp_path)
    figures = [
        {"staleness_mean": 1.0, "staleness_max": 4.0, "wait_seconds": 2.0, "alpha": 1.0},
        {"staleness_mean": 2.0, "staleness_max": 3.0, "wait_seconds": 6.0, "alpha": 0.5},
        {},
    ]
    line = json.dumps({"workers": [{"figures": found} for found in figures], "scores": []})
    folder.metrics.write_text(f'{{"old": 1}}\n{line}\n{{"cut sh')
    assert paceline.Result(folder.path).staleness == {"mean": 1.5, "max": 4.0, "wait_seconds": 4.0, "alpha": 0.75}


def test_a_result_tells_what_deaths_took_also_of_an_older_run(tmp_path: Path) -> None:
    folder, _ = open_run(Config(run="one"), runs=tmp_path)
    assert str(paceline.Result(folder.path).recovery) == ""
    kept = {"servers": 2, "damaged": 0, "replayed": 3, "rerun": 1}  # as the first release wrote it
    folder.write_facts(recovery=kept, seconds=3.0, exit_code=143)

    recovery = paceline.Result(folder.path).recovery

    assert (recovery.servers, recovery.replayed, recovery.rerun, recovery.went_back, recovery.waited) == (2, 3, 1, 0, 0)
    assert "2 starts of servers from their snapshots, 3 pushes sent again" in str(recovery)
    assert paceline.Result(folder.path).seconds == 3

    folder.write_facts(exit_code=None)  # it was resumed
    folder.metrics.write_text(json.dumps({"seconds": 7.5}) + "\n")
    assert paceline.Result(folder.path).seconds == 7.5
    assert str(paceline.Result(folder.path).recovery) == ""


def test_a_run_that_was_not_scored_has_no_model(tmp_path: Path) -> None:
    folder, _ = open_run(Config(run="one"), runs=tmp_path)
    result = paceline.Result(folder.path)
    assert (result.metrics, result.history) == ({}, [])
    with pytest.raises(DataError, match="run 'one' was not scored"):
        _ = result.model


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        paceline.Result(tmp_path)

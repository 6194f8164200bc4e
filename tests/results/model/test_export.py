"""A run's model in files for use elsewhere, from a folder that may have been moved, and refusals in one sentence."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

import paceline
from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.launch.folder.run_folder import RunFolder
from tests.support.trained_run import trained_run

torch = pytest.importorskip("torch")
TASK = """
import numpy as np

from paceline.extend import Dataset, Labelled


def data(path):
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    return Dataset(Labelled(features, (features[:, 0] > 0).astype(np.int64)))


def model():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, inputs):
            FORWARD

    return Net()
"""
PLAIN = "return self.layer(inputs)"


def own(folder: Path, forward: str = PLAIN) -> Path:
    file = folder / "own.py"
    file.write_text(TASK.replace("FORWARD", forward))
    return file


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return trained_run(tmp_path / "runs", own(tmp_path))


def test_torch_export_needs_no_code_and_takes_mini_batches_of_any_size(run: RunFolder, tmp_path: Path) -> None:
    result = paceline.Result(run.path)

    program = torch.export.load(result.export(tmp_path / "deep" / "model.pt2"))

    for rows in (1, 7):
        inputs = torch.randn(rows, 4)
        assert torch.allclose(program.module()(inputs), result.model(inputs))


def test_names_of_classes_go_with_the_model_in_every_form(tmp_path: Path) -> None:
    file = own(tmp_path)
    file.write_text(file.read_text().replace("astype(np.int64))", 'astype(np.int64)), classes=("no", "süß")'))
    result = paceline.Result(trained_run(tmp_path / "runs", file).path)
    expected = '["no", "süß"]'

    program, script = {"classes": ""}, {"classes": ""}
    torch.export.load(result.export(tmp_path / "model.pt2"), extra_files=program)
    torch.jit.load(result.export(tmp_path / "model.pt"), _extra_files=script)
    onnx = pytest.importorskip("onnx")
    found = onnx.load(result.export(tmp_path / "model.onnx"))

    assert program["classes"] == bytes(script["classes"]).decode() == expected
    assert {prop.key: prop.value for prop in found.metadata_props}["classes"] == expected
    with safe_open(result.export(tmp_path / "model.safetensors"), "np") as kept:
        assert json.loads(kept.metadata()["inputs"])["classes"] == ["no", "süß"]


@pytest.mark.parametrize("ending", [".pt", ".pt2", ".onnx"])
@pytest.mark.parametrize(
    "forward",
    [
        "return self.layer(inputs if inputs.sum() > 0 else -2 * inputs)",
        "return sum(self.layer(inputs) for _ in range(1 + int(inputs.abs().sum())))",
        "return self.layer(inputs.reshape(2, 4)) if len(inputs) == 2 else 0 * self.layer(inputs)",
    ],
)
def test_a_model_that_goes_by_values_or_by_rows_is_refused_in_a_sentence(
    forward: str, ending: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = trained_run(tmp_path / "runs", own(tmp_path, forward))
    (tmp_path / f"model{ending}").write_bytes(b"of last week")

    with pytest.raises(ConfigError, match=rf"^The model of task 'own' .* to \{ending}.* must take one") as told:
        paceline.Result(run.path).export(tmp_path / f"model{ending}")

    assert "\n" not in str(told.value)
    assert told.value.__suppress_context__
    assert (tmp_path / f"model{ending}").read_bytes() == b"of last week"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("ending", [".pt", ".pt2", ".onnx"])
def test_a_model_that_is_random_is_called_that(ending: str, tmp_path: Path) -> None:
    run = trained_run(tmp_path / "runs", own(tmp_path, "return torch.nn.functional.dropout(self.layer(inputs))"))

    with pytest.raises(ConfigError, match=r"other outputs each time .* random, like functional\.dropout"):
        paceline.Result(run.path).export(tmp_path / f"model{ending}")


def test_a_model_that_takes_some_values_only_is_exported(tmp_path: Path) -> None:
    """What is made up to try an export on may be beyond the rows of a table."""
    forward = "return self.layer(TABLE[(inputs[:, 0] + 9).long()] + 0 * inputs)"
    run = trained_run(tmp_path / "runs", own(tmp_path, forward))
    file = run.kept_task("own.py")
    for each in (file, tmp_path / "own.py"):
        each.write_text("import torch\n\nTABLE = torch.ones(20, 4)\n" + each.read_text())

    assert paceline.Result(run.path).export(tmp_path / "model.pt").exists()


def test_the_refusal_names_the_line_where_torch_tells_it(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "runs", own(tmp_path, "return self.layer(inputs) if inputs.sum() > 0 else inputs"))

    with pytest.raises(ConfigError, match=r"exported to \.pt2 \(own\.py, line 21\): which way it goes"):
        paceline.Result(run.path).export(tmp_path / "model.pt2")


def test_a_folder_is_read_from_wherever_it_was_moved_to_by_its_own_copy_of_the_task(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = torch.randn(3, 4)
    expected = paceline.Result(run.path).model(inputs)
    (tmp_path / "own.py").unlink()
    moved = shutil.move(run.path, tmp_path / "elsewhere")
    monkeypatch.chdir("/")

    result = paceline.Result(moved)

    assert torch.equal(result.model(inputs), expected)
    assert torch.equal(torch.jit.load(result.export(tmp_path / "model.pt"))(inputs), expected)


def test_what_trained_a_run_counts_and_not_what_its_file_has_become(run: RunFolder, tmp_path: Path) -> None:
    own(tmp_path, "return 7 * self.layer(inputs)")
    inputs = torch.randn(3, 4)

    model = paceline.Result(run.path).model

    assert torch.equal(model(inputs), model.layer(inputs))


def test_a_resumed_run_says_that_its_task_file_has_changed(run: RunFolder, tmp_path: Path) -> None:
    file = str(tmp_path / "own.py")
    assert run.keep_task(file) is None
    own(tmp_path, "return 7 * self.layer(inputs)")

    assert run.keep_task(file) == f"{file} has changed since this run began; it goes on with the file as it is now."
    assert run.kept_task(file).read_bytes() == Path(file).read_bytes()
    assert run.keep_task("digits") is None


def test_a_task_file_that_can_not_be_kept_is_told(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    own(tmp_path, "return 7 * self.layer(inputs)")

    with pytest.raises(DiskError, match=r"Can't copy .*own\.py to .*task/own\.py: No space left on device"):
        run.keep_task(str(tmp_path / "own.py"))


def test_a_model_of_another_task_file_is_told_with_the_place_of_the_right_one_and_a_damaged_one(
    run: RunFolder, tmp_path: Path
) -> None:
    kept = run.kept_task("own.py")
    kept.write_text(own(tmp_path).read_text().replace("Linear(4, 2)", "Linear(4, 3)"))

    with pytest.raises(ConfigError, match=r"does not fit the model of task .*size mismatch .*task/own\.py"):
        _ = paceline.Result(run.path).model
    (run.models / "last.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"last\.safetensors is damaged: "):
        _ = paceline.Result(run.path).model


def test_without_shards_a_model_is_traced_with_zeros(run: RunFolder, tmp_path: Path) -> None:
    shutil.rmtree(run.shards)

    result = paceline.Result(run.path)

    inputs = torch.randn(3, 4)
    assert torch.equal(torch.jit.load(result.export(tmp_path / "model.pt"))(inputs), result.model(inputs))


def test_a_linear_model_is_exported_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.models.mkdir(parents=True)
    folder.config.write_text("task: svm\nupdates: sparse\noptimizer: {name: sgd, lr: 0.1}\n")
    for ending in (".safetensors", ".liblinear"):
        (folder.models / f"last{ending}").write_text(ending)
    result = paceline.Result(folder.path)

    assert result.export(tmp_path / "a.liblinear").read_text() == ".liblinear"
    assert result.export(tmp_path / "a.safetensors").read_text() == ".safetensors"
    with pytest.raises(ConfigError, match=r"'one' has a linear model. Export it as \.safetensors or \.liblinear"):
        result.export(tmp_path / "a.pt")


def test_the_command_says_where_the_file_is_or_what_is_wrong(run: RunFolder, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(run.path), str(tmp_path / "a.safetensors"), "--best"])
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'a.safetensors'}\n")

    done = CliRunner().invoke(app, ["export", str(run.path), str(tmp_path / "a.h5")])
    assert done.exit_code == 78
    assert "its ending must be .safetensors (weights), .pt2 (torch.export), .pt (TorchScript) or .onnx" in done.stderr

    assert CliRunner().invoke(app, ["export", "nowhere", "a.pt"]).exit_code == 64

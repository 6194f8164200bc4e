import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from paceline.core.errors import DiskError
from paceline.tasks import defaults
from paceline.tasks.task import Task, load_task
from paceline.worker.scoring import model_file
from paceline.worker.scoring.model_file import save_model
from paceline.worker.training.model_and_gradient import Replica


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    net[2].bias.requires_grad_(False)
    return net


def replica_of(model=tied) -> Replica:
    return Replica(Task("small", None, model, defaults.prepare, defaults.loss, defaults.metrics, {}))


def test_the_three_lines_of_the_docstring_load_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    task = load_task("digits")
    replica = Replica(task, seed=5)
    monkeypatch.chdir(tmp_path)
    save_model(Path("model.safetensors"), replica, {"task": "digits"})
    lines = [line for line in model_file.__doc__.splitlines() if "load_file" in line or line.startswith("model =")]

    names = {"task": task}
    exec("\n".join(lines).replace("...", "task.model()"), names)

    assert len(lines) == 3
    loaded = torch.cat([parameter.detach().reshape(-1) for parameter in names["model"].parameters()])
    assert np.array_equal(loaded.numpy(), replica.local)


def test_tied_frozen_and_buffers_load_into_a_new_model(tmp_path: Path):
    replica = replica_of()
    replica.gradient(np.ones((3, 4), np.float32), np.zeros(3, np.int64), 0, None)

    save_model(tmp_path / "m.safetensors", replica, {})

    model = tied()
    model.load_state_dict(load_file(tmp_path / "m.safetensors"))
    for name, value in model.state_dict().items():
        assert torch.equal(value, replica.model.state_dict()[name])


def test_the_metadata_is_in_the_file(tmp_path: Path):
    from safetensors import safe_open

    save_model(tmp_path / "m.safetensors", replica_of(), {"accuracy": "0.97"})

    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt", "accuracy": "0.97"}


def test_a_second_model_replaces_the_first_and_leaves_nothing_beside_it(tmp_path: Path):
    replica = replica_of()
    save_model(tmp_path / "m.safetensors", replica, {})

    replica.load(np.zeros(replica.length, np.float32))
    save_model(tmp_path / "m.safetensors", replica, {})

    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert not load_file(tmp_path / "m.safetensors")["0.weight"].any()


def test_a_failed_write_keeps_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_model(tmp_path / "m.safetensors", replica_of(), {})
    before = (tmp_path / "m.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left on device"):
        save_model(tmp_path / "m.safetensors", replica_of(), {})

    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert (tmp_path / "m.safetensors").read_bytes() == before


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(DiskError, match="Can't write the model"):
        save_model(tmp_path / "nowhere" / "m.safetensors", replica_of(), {})

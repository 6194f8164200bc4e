"""A user's training script up to its first step, before anything is started: its mistakes are reported with their line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError, PlanMismatch
from paceline.settings.load_settings import load, write_yaml
from paceline.sharder.sharding import make_shards
from paceline.worker.command_line import ToldScript

rehearsal = pytest.importorskip("paceline.worker.checking.rehearsal")
SCRIPT = """
from pathlib import Path
import torch
import paceline
from torch.nn import functional

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
with paceline.connect(model) as session:
    for inputs, targets in session.loader():
        session.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        session.step(loss)
        Path("stepped").touch()
Path("saved").touch()
"""
Rehearse = Callable[..., None]


class Left(BaseException):
    """The process would have ended here."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config.yaml and shards of the digits."""
    folder = tmp_path_factory.mktemp("rehearsal")
    config = load(None, {"task": "digits", "workers": 2})
    write_yaml(config, folder / "config.yaml")
    make_shards(config, folder / "shards")
    return folder


@pytest.fixture
def rehearse(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearse:
    def left() -> None:
        raise Left

    def go(script: str, config: Path = place / "config.yaml") -> None:
        (tmp_path / "loop.py").write_text(script)
        told = ToldScript(config=config, shards=place / "shards", servers="", device="cpu", rehearsal=True)
        rehearsal.rehearse("loop.py", told)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONNECT, "{}")
    monkeypatch.setattr("sys.argv", ["check"])
    monkeypatch.setattr(rehearsal, "leave", left)
    return go


def test_a_script_that_can_train_ends_at_its_first_step_and_does_nothing_behind_it(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    with pytest.raises(Left):
        rehearse(SCRIPT)

    assert os.listdir(tmp_path) == ["loop.py"]


def test_a_whole_mini_batch_of_a_worker_is_computed(rehearse: Rehearse, place: Path) -> None:
    size = load(place / "config.yaml").worker_batch

    with pytest.raises(Left):
        rehearse(SCRIPT.replace("session.zero_grad()", f"session.zero_grad(); assert inputs.shape == ({size}, 64)"))


def test_a_script_that_never_steps_or_brings_its_own_data_passes(rehearse: Rehearse) -> None:
    rehearse("import paceline\nwith paceline.connect() as session:\n    assert not session.is_over\n")
    with pytest.raises(Left):
        rehearse(
            SCRIPT.replace(
                "for inputs, targets in session.loader():",
                "inputs, targets = next(session.loader())\n    while not session.is_over:",
            )
        )


BAD = [
    (
        "loss.backward()",
        "loss.backwards()",
        r"^loop: loop.py, line 12: AttributeError: 'Tensor' object has no attribute 'backwards'$",
    ),
    ("loss.backward()", "", r"^loop: loop.py, line 13: session.step\(\) found no gradients .*Call backward\(\)"),
    (
        "session.step(loss)",
        "",
        r"^loop: loop.py, line 9: The loop asked for another mini-batch without session.step\(\)",
    ),
    ("targets)", "targets + 1)", r"line 11: IndexError: Target 10 is out of bounds"),
    (
        "torch.nn.Linear(64, 64)",
        "torch.nn.Linear(65, 64)",
        r"line 8: .*it has '0.weight' of shape \(64, 65\) where the task's has '0.weight' of shape \(64, 64\)",
    ),
    ("session.zero_grad()", "raise SystemExit('no')", r"line 10: it ends with 'no' before its first step"),
    ("model = ", "import nowhere_at_all; model = ", r"line 7: ModuleNotFoundError: No module named 'nowhere_at_all'"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), BAD, ids=[row[1] or f"no {row[0]}" for row in BAD])
def test_a_mistake_is_one_sentence_with_the_scripts_own_line(
    rehearse: Rehearse, old: str, new: str, sentence: str
) -> None:
    assert old in SCRIPT

    with pytest.raises(ConfigError, match=sentence):
        rehearse(SCRIPT.replace(old, new))


def test_another_model_than_the_tasks_is_named_as_that(rehearse: Rehearse) -> None:
    with pytest.raises(PlanMismatch, match=r"it has '3.weight' .* where the task's has no further one"):
        rehearse(SCRIPT.replace("torch.nn.Linear(64, 10))", "torch.nn.Linear(64, 10), torch.nn.Linear(10, 10))"))


def test_gradients_that_the_wire_can_not_carry_are_told(rehearse: Rehearse, place: Path) -> None:
    narrow = load(place / "config.yaml", {"codec": {"push": "fp16"}})
    write_yaml(narrow, place / "narrow.yaml")

    with pytest.raises(ConfigError, match=r"line 13: codec.push is fp16, .*become infinite in it"):
        rehearse(SCRIPT.replace("loss.backward()", "(loss * 1e9).backward()"), place / "narrow.yaml")


def test_the_variable_says_that_it_is_a_rehearsal(rehearse: Rehearse) -> None:
    with pytest.raises(Left):
        rehearse(SCRIPT)

    assert json.loads(os.environ[CONNECT])["rehearsal"] is True

"""What Weights & Biases gets: by its real library, offline, where it is installed, and by the calls of a stand-in."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paceline.callback import End
from paceline.launch.loggers.wandb import WeightsAndBiases
from tests.support import told_loggers as told
from tests.support.processes import eventually


class Run:
    """A run of W&B's, as far as the logger calls it."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.metrics: list[tuple[str, str | None]] = []
        self.rows: list[dict[str, float]] = []
        self.alerts: list[dict[str, str]] = []
        self.summary: dict[str, Any] = {}
        self.exit_code: int | None = None

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def alert(self, title: str, text: str) -> None:
        self.alerts.append({"title": title, "text": text})

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs of a stand-in for W&B."""
    found: list[Run] = []

    def init(**given: Any) -> Run:
        found.append(Run(**given))
        return found[-1]

    module = ModuleType("wandb")
    vars(module).update(init=init, Settings=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_a_run_is_told_whole_and_stays_offline_in_its_folder(runs: list[Run], tmp_path: Path) -> None:
    told.tell(WeightsAndBiases(), tmp_path)

    (run,) = runs
    assert (run.given["mode"], run.given["dir"], run.given["project"]) == ("offline", tmp_path, "paceline")
    assert run.given["config"]["optimizer"] == {"name": "sgd", "lr": 0.1}
    assert run.given["config"]["workers"] == 2
    assert run.given["settings"].console == "off"
    assert run.metrics == [("version", None), ("*", "version")]
    assert run.rows[0] == {
        "version": 1,
        "run/loss": 1.0,
        "run/learning_rate": 0.1,
        "run/examples_per_second": 640.0,
        "run/epoch": 0.1,
        "log/norm": 2.5,
        "worker-0/loss": 0.5,
        "worker-0/learning_rate": 0.1,
        "worker-0/log/norm": 2.0,
        "worker-1/loss": 1.5,
        "worker-1/learning_rate": 0.1,
        "worker-1/log/norm": 3.0,
    }
    assert run.rows[3] == {"version": 1, "test/accuracy": 0.75, "train/loss": 1.0}
    assert run.alerts == [{"title": "loss_above_start", "text": "warning: the loss is 9. Try optimizer.lr=0.01."}]
    assert run.summary == {"test_accuracy": 0.75, "reason": "the budget is spent", "training_seconds": 2.0}
    assert run.exit_code == 0


def test_the_environment_says_where_to(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WANDB_MODE": "online", "WANDB_DIR": "/elsewhere", "WANDB_PROJECT": "mine"}.items():
        monkeypatch.setenv(name, value)
    told.tell(WeightsAndBiases(), tmp_path)
    assert [runs[0].given[name] for name in ("mode", "dir", "project")] == ["online", "/elsewhere", "mine"]


def test_a_resumed_run_goes_on_in_the_same_run(runs: list[Run], tmp_path: Path) -> None:
    told.tell(WeightsAndBiases(), tmp_path, End.STOPPED)
    told.tell(WeightsAndBiases(), tmp_path, first=2)
    first, second = (run.given for run in runs)
    assert first["id"] == second["id"]
    assert second["resume"] == "allow"
    assert [run.exit_code for run in runs] == [130, 0]


def payload(written: bytes) -> bytes:
    """What a file of W&B's says: a head of 7 bytes, then blocks of 32 KiB, in which each piece of a record has a head of 7
    bytes (LevelDB's log), which would cut a text in two."""
    found, at = b"", 7
    while at + 7 <= len(written):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length = int.from_bytes(written[at + 4 : at + 6], "little")
        found += written[at + 7 : at + 7 + length]
        at += 7 + length
    return found


def test_the_real_library_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    told.tell(WeightsAndBiases(), tmp_path)

    (written,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    texts = (b"run/loss", b"worker-1/log/norm", b"test/accuracy", b"filler", b"the budget is spent")
    eventually(lambda: all(text in payload(written.read_bytes()) for text in texts), "W&B's own process writes it")

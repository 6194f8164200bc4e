"""What Weights & Biases gets: by its real library, offline, where it is installed, and by the calls of a stand-in; and what
TensorBoard's own reader and its plugin of hyper-parameters find in a run's folder."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paceline.callback import End
from paceline.launch.loggers.tensorboard import TensorBoard
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


def events(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(folder)).Reload()


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = events(folder)
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_the_runs_curves_and_scores_are_over_the_version(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path)

    found = curves(tmp_path)
    assert found["run/loss"] == [(1, 1.0), (2, 1.0)]
    assert found["run/examples_per_second"] == [(1, 640.0), (2, 640.0)]
    assert found["run/learning_rate"][0][1] == pytest.approx(0.1)
    assert found["log/norm"] == [(1, 2.5), (2, 2.5)]
    assert found["test/accuracy"] == [(0, 0.5), (1, 0.75)]


def test_each_worker_is_a_run_with_the_same_tags_so_that_one_chart_has_all(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path)

    both = [curves(tmp_path / "curves" / f"worker-{rank}") for rank in range(2)]
    assert both[0].keys() == both[1].keys() == {"worker/loss", "worker/learning_rate", "worker/log/norm"}
    assert [found["worker/loss"] for found in both] == [[(1, 0.5), (2, 0.5)], [(1, 1.5), (2, 1.5)]]


def test_a_resumed_run_goes_on_in_the_same_charts(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path, End.STOPPED)
    told.tell(TensorBoard(), tmp_path, first=2)
    multiplexer = pytest.importorskip("tensorboard.backend.event_processing.event_multiplexer")
    found = multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    assert sorted(found.Runs()) == [".", "curves/worker-0", "curves/worker-1"]
    files = sorted(tmp_path.glob("events*"))
    assert [curves(file)["run/loss"] for file in files] == [[(1, 1.0), (2, 1.0)], [(3, 1.0), (4, 1.0)]]


def test_the_table_of_hyper_parameters_has_the_settings_and_that_it_finished(tmp_path: Path) -> None:
    api_pb2, metadata = (pytest.importorskip(f"tensorboard.plugins.hparams.{name}") for name in ("api_pb2", "metadata"))

    told.tell(TensorBoard(), tmp_path, End.STOPPED)
    told.tell(TensorBoard(), tmp_path, first=2)
    found = events(tmp_path)

    def content(tag: str) -> bytes:
        plugin = found.SummaryMetadata(tag).plugin_data
        assert plugin.plugin_name == metadata.PLUGIN_NAME
        return bytes(plugin.content)

    start = metadata.parse_session_start_info_plugin_data(content(metadata.SESSION_START_INFO_TAG))
    assert start.group_name == "digits-ssp"
    assert set(start.hparams) == set(told.SETTINGS)
    assert start.hparams["optimizer.lr"].number_value == pytest.approx(0.1)
    assert start.hparams["optimizer.name"].string_value == "sgd"
    assert start.hparams["compile"].HasField("bool_value")
    end = metadata.parse_session_end_info_plugin_data(content(metadata.SESSION_END_INFO_TAG))
    assert end.status == api_pb2.STATUS_SUCCESS

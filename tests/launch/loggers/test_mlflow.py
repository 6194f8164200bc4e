"""What MLflow gets: by its real client in a database, where it is installed, and by the calls of a stand-in."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from paceline.callback import End
from paceline.launch.loggers.mlflow import MLflow
from tests.support import told_loggers as told


class NoSuchRun(Exception):
    """MlflowException of the stand-in."""


class Client:
    """MlflowClient, as far as the logger calls it; one store for all of them."""

    store: dict[str, Any]

    def get_experiment_by_name(self, name: str) -> Any:
        return self.store["experiments"].get(name)

    def create_experiment(self, name: str) -> str:
        self.store["experiments"][name] = SimpleNamespace(experiment_id="7")
        return "7"

    def create_run(self, experiment_id: str, tags: dict[str, str], run_name: str) -> Any:
        assert experiment_id == "7"
        run = SimpleNamespace(params={}, metrics=[], tags=dict(tags), artifacts={}, status=["RUNNING"], name=run_name)
        self.store["runs"][f"id-{len(self.store['runs'])}"] = run
        return SimpleNamespace(info=SimpleNamespace(run_id=f"id-{len(self.store['runs']) - 1}"))

    def get_run(self, run_id: str) -> Any:
        if run_id not in self.store["runs"]:
            raise NoSuchRun(run_id)
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def update_run(self, run_id: str, status: str) -> None:
        self.store["runs"][run_id].status.append(status)

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(params) <= 100
        assert len(metrics) <= 1000
        run = self.store["runs"][run_id]
        run.params.update(params)
        run.metrics += [(name, value, step) for name, value, _, step in metrics]

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.store["runs"][run_id].tags[key] = value

    def log_artifact(self, run_id: str, path: str, folder: str) -> None:
        self.store["runs"][run_id].artifacts[f"{folder}/{Path(path).name}"] = Path(path).read_bytes()

    def set_terminated(self, run_id: str, status: str) -> None:
        self.store["runs"][run_id].status.append(status)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The runs of a stand-in for MLflow, by their ids."""
    store: dict[str, Any] = {"experiments": {}, "runs": {}}
    client = type("Client", (Client,), {"store": store})
    modules = {
        "mlflow": {"MlflowClient": client},
        "mlflow.entities": {"Param": lambda key, value: (key, value), "Metric": lambda *values: values},
        "mlflow.exceptions": {"MlflowException": NoSuchRun},
    }
    for name, things in modules.items():
        module = ModuleType(name)
        vars(module).update(things)
        monkeypatch.setitem(sys.modules, name, module)
    found: dict[str, Any] = store["runs"]
    return found


def test_a_run_is_told_whole(runs: dict[str, Any], tmp_path: Path) -> None:
    told.tell(MLflow(), tmp_path)

    (run,) = runs.values()
    assert run.name == "digits-ssp"
    assert run.params == {key: str(value) for key, value in told.SETTINGS.items()}
    assert ("run/loss", 1.0, 2) in run.metrics
    assert ("worker-1/loss", 1.5, 1) in run.metrics
    assert ("worker-0/log/norm", 2.0, 1) in run.metrics
    assert [each for each in run.metrics if each[0] == "test/accuracy"] == [
        ("test/accuracy", 0.5, 0),
        ("test/accuracy", 0.75, 1),
    ]
    assert run.tags["warning.loss_above_start"] == "warning: the loss is 9. Try optimizer.lr=0.01."
    assert run.tags["paceline.reason"] == "the budget is spent"
    assert run.artifacts == {"model/last.safetensors": b"weights"}
    assert run.status[-1] == "FINISHED"


@pytest.mark.parametrize(("how", "shown"), [(End.FAILED, "FAILED"), (End.STOPPED, "KILLED")])
def test_the_end_is_mlflows_word_for_it(runs: dict[str, Any], tmp_path: Path, how: End, shown: str) -> None:
    told.tell(MLflow(), tmp_path, how, model=None)
    (run,) = runs.values()
    assert run.status[-1] == shown
    assert run.artifacts == {}


def test_a_resumed_run_goes_on_in_the_same_run(runs: dict[str, Any], tmp_path: Path) -> None:
    told.tell(MLflow(), tmp_path, End.STOPPED)
    told.tell(MLflow(), tmp_path, first=2)
    (run,) = runs.values()
    assert [step for name, _, step in run.metrics if name == "run/loss"] == [1, 2, 3, 4]
    assert run.status[-3:] == ["KILLED", "RUNNING", "FINISHED"]


def test_a_store_that_does_not_know_the_run_gets_a_new_one(runs: dict[str, Any], tmp_path: Path) -> None:
    told.begin(tmp_path).remembered("mlflow", "of-another-store")
    told.tell(MLflow(), tmp_path, first=2)
    assert list(runs) == ["id-0"]
    assert told.begin(tmp_path).remembered("mlflow") == "id-0"


def test_the_real_mlflow_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "tried")
    told.tell(MLflow(), tmp_path, End.STOPPED)
    told.tell(MLflow(), tmp_path, first=2)

    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("tried").experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "digits-ssp")
    assert run.data.params == {key: str(value) for key, value in told.SETTINGS.items()}
    assert [each.step for each in client.get_metric_history(run.info.run_id, "run/loss")] == [1, 2, 3, 4]
    assert run.data.metrics["test/accuracy"] == 0.75
    assert [each.path for each in client.list_artifacts(run.info.run_id, "model")] == ["model/last.safetensors"]

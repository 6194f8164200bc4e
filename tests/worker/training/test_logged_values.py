"""What a script logs with `paceline.log`, and what becomes of it in a worker's figures."""

import math
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

import paceline
from paceline.callback import LEFT_OUT
from paceline.core.errors import ConfigError
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.training import logged_values
from paceline.worker.training.logged_values import MOST, LoggedValues

torch = pytest.importorskip("torch")
progress_module = pytest.importorskip("paceline.worker.training.status_and_metrics")
Step = pytest.importorskip("paceline.worker.training.step_result").Step


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> LoggedValues:
    """What this process logs from now on."""
    fresh = LoggedValues()
    monkeypatch.setattr("paceline.api.log_values.LOGGED", fresh)
    return fresh


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2),
        np.array([2.0]),
        torch.tensor(2.0),
        torch.tensor([[2]]),
        torch.tensor(2.0, requires_grad=True),
    ],
)
def test_numbers_tensors_and_arrays_of_one_element_are_values(logged: LoggedValues, value: object) -> None:
    paceline.log(**{"grad_norm/encoder.0": value})
    assert logged.read() == {"grad_norm/encoder.0": 2.0}


def test_the_newest_value_of_each_name_counts(logged: LoggedValues) -> None:
    paceline.log(loss=3.0, accuracy=0.5)
    paceline.log(loss=2.0, diverged=True, worst=math.inf)
    assert logged.read() == {"loss": 2.0, "accuracy": 0.5, "diverged": 1.0, "worst": math.inf}
    assert logged.loss() == 2.0


def test_a_tensor_that_is_written_into_later_was_logged_as_it_was(logged: LoggedValues) -> None:
    total = torch.tensor(2.0)
    paceline.log(total=total)
    total.zero_()
    assert logged.read() == {"total": 2.0}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"loss": "0.5"}, r"log\(loss=\.\.\.\) got a str; expected a number"),
        ({"loss": torch.ones(3)}, r"got a Tensor of shape \(3,\); .* Reduce it first"),
        ({"loss": np.ones((2, 2))}, r"got a ndarray of shape \(2, 2\)"),
        ({"loss": None}, "got a NoneType"),
        ({"loss": [1.0]}, "got a list"),
        ({"train loss": 1.0}, r"got the name 'train loss'; expected up to 64 letters"),
        ({"": 1.0}, "got the name ''"),
        ({"n" * 65: 1.0}, "expected up to 64 letters"),
    ],
)
def test_what_can_not_be_shown_is_refused_as_a_whole(logged: LoggedValues, values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        paceline.log(**{"fine": 1.0, **values})
    assert logged.read() == {}


def test_names_beyond_those_that_a_run_takes_are_left_out_and_counted(logged: LoggedValues) -> None:
    for number in range(MOST + 3):
        paceline.log(**{f"step_{number}": number})
    paceline.log(step_0=9.0)

    assert len(logged.read()) == MOST
    assert logged.read()["step_0"] == 9.0
    assert progress(logged).state()[3][LEFT_OUT] == 3


def progress(logged: LoggedValues, registry: CollectorRegistry | None = None) -> Any:
    found = progress_module.Progress(registry or CollectorRegistry())
    found.logged = logged
    return found


def test_they_go_with_the_heartbeat_under_names_of_their_own_and_to_prometheus(logged: LoggedValues) -> None:
    registry = CollectorRegistry()
    worker = progress(logged, registry)
    paceline.log(compute_rate=7.0, accuracy=0.5)

    figures = worker.state()[3]
    assert (figures["log.compute_rate"], figures["log.accuracy"]) == (7.0, 0.5)
    assert "compute_rate" not in figures
    assert registry.get_sample_value("paceline_worker_logged", {"name": "accuracy"}) == 0.5


def test_a_logged_loss_is_the_workers_where_the_step_tells_none(logged: LoggedValues) -> None:
    registry = CollectorRegistry()
    worker = progress(logged, registry)
    paceline.log(loss=torch.tensor(0.25))
    worker.stepped(1, 0, Step(None, math.nan, 8, True), [pb.PullHead()], 1.0)

    assert worker.state()[3]["loss"] == 0.25
    assert "log.loss" not in worker.state()[3]
    assert registry.get_sample_value("paceline_worker_loss") == 0.25
    worker.stepped(2, 0, Step(None, 0.125, 8, True), [pb.PullHead()], 1.0)
    assert worker.state()[3]["loss"] == 0.125


def test_a_logged_loss_may_grow_but_that_of_a_step_is_seen_to_explode(logged: LoggedValues) -> None:
    losses = (1.0, 1.0, 1.0, 1e6, 1e6, 1e6)
    worker, by_step = progress(logged), progress(LoggedValues())
    for clock, loss in enumerate(losses, 1):
        paceline.log(loss=loss)
        worker.stepped(clock, 0, Step(None, math.nan, 8, True), [pb.PullHead()], 1.0)
        by_step.stepped(clock, 0, Step(None, loss, 8, True), [pb.PullHead()], 1.0)

    assert worker.state()[3]["loss"] == 1e6
    assert "exploding_longest" not in worker.state()[3]
    assert by_step.state()[3]["exploding_longest"] == 3


def test_outside_of_a_run_it_says_nothing(logged: LoggedValues, capsys: pytest.CaptureFixture[str]) -> None:
    paceline.log(loss=1.0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for_until_the_value_is_read(logged: LoggedValues) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        value = torch.ones((), device="cuda")
        torch.cuda._sleep(200_000_000)
        value.mul_(3)
        paceline.log(value=value)
        value.zero_()
        assert not side.query()
    assert isinstance(logged._values["value"], logged_values._OnGpu)
    assert logged.read() == {"value": 3.0}
    assert logged.read() == {"value": 3.0}

"""Weights on their way out: a caller that reads slowly holds nothing that training needs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.errors import Overloaded
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Dense, Push, Seat, View
from paceline.rpc.roles import ANYONE, Caller, answer
from paceline.server import outgoing_weights, slice_driver
from paceline.server.metrics import ServerMetrics
from paceline.server.outgoing_weights import OutgoingWeights, Parts
from paceline.server.slice_driver import SliceDriver

SHAPES = (("layer.weight", (4,)),)
PLAIN = Options(name="sgd", lr=1.0, momentum=0.0, weight_decay=0.0)
TWO_VALUES = 8
"""Bytes of a part."""


class Training:
    """One slice, and a worker whose every push takes 1 off each weight, which is 0 at first."""

    def __init__(self, folder: Path) -> None:
        config = Config(servers=1, policy=Options(name="asp"), optimizer=PLAIN, schedule={"lr_scale": "none"})
        self.driver = SliceDriver(config, 0, 1, ServerMetrics(CollectorRegistry(), "asp"))
        self.driver.adopt(SHAPES, make_plan(SHAPES, 1, config.plan).hash, "worker-0")
        self.driver.initialise(np.zeros(4, np.float32), b"first")
        self.driver.view(View(1, {"worker-0": Seat(1, 0)}))
        self.weights = OutgoingWeights(self.driver, folder)

    def push(self) -> None:
        """Raises an error where the push has to wait for a reader."""
        version = self.driver.model_slice.version
        update = Dense(np.ones(4, np.float32))
        push = Push("worker-0", 1, version + 1, update, 1, Base(1, version), 0, 0.0)
        reply = self.driver.push(push, None, lambda: True)
        assert reply is not None, "it waits"
        self.driver.release(reply.weights)

    def pins(self) -> int:
        return self.driver.model_slice.folding.versions.current.pins


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setattr(slice_driver, "LONGEST_WAIT", 0.0)
    return Training(tmp_path)


@pytest.fixture
def reader() -> Iterator[str]:
    answer(Caller("reader", "plotter"))
    yield "plotter"
    answer(ANYONE)


def values_of(parts: Parts) -> list[float]:
    return [value for _, data in parts for value in np.frombuffer(data, np.float32).tolist()]


def pulled(training: Training, who: str) -> list[float]:
    published = training.driver.pull(None, lambda: True)
    with training.weights.parts(published, "none", TWO_VALUES, who) as (_, parts):
        return values_of(parts)


def test_readers_hold_no_version_while_they_read(training: Training, reader: str) -> None:
    first = training.driver.pull(None, lambda: True)
    with training.weights.parts(first, "none", TWO_VALUES, reader) as (_, early):
        training.push()
        second = training.driver.pull(None, lambda: True)
        with training.weights.parts(second, "none", TWO_VALUES, reader) as (_, late):
            training.push()
            training.push()
            assert training.pins() == 0
            assert (values_of(early), values_of(late)) == ([0.0] * 4, [-1.0] * 4)


def test_readers_of_the_newest_weights_share_a_copy_while_it_is_new(
    training: Training, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert training.weights.recent(is_mean=False) is None
    pulled(training, reader)
    copy = training.weights.recent(is_mean=False)
    assert copy is not None
    training.push()
    with training.weights.parts(copy, "none", TWO_VALUES, reader) as (_, parts):
        assert values_of(parts) == [0.0] * 4

    monkeypatch.setattr(outgoing_weights, "_FRESH", 0.0)
    assert training.weights.recent(is_mean=False) is None


def test_who_trains_gets_the_newest_weights_and_no_readers_copy(training: Training, reader: str) -> None:
    pulled(training, reader)
    answer(Caller("worker", "worker-0"))
    assert training.weights.recent(is_mean=False) is None
    training.push()
    assert pulled(training, "worker-0") == [-1.0] * 4


def test_a_worker_that_reads_slowly_loses_its_version_and_then_reads_a_copy(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = training.driver.pull(None, lambda: True)
    with training.weights.parts(slow, "none", TWO_VALUES, "worker-1") as (_, parts):
        next(parts)
        training.push()
        held = training.driver.pull(None, lambda: True)
        with pytest.raises(AssertionError, match="it waits"):
            training.push()
        monkeypatch.setattr(slice_driver, "PATIENCE", 0.0)
        training.push()
        with pytest.raises(Overloaded, match="training needed its memory"):
            values_of(parts)
    assert not held.is_lost, "it was newer"

    again = training.driver.pull(None, lambda: True)
    with training.weights.parts(again, "none", TWO_VALUES, "worker-1") as (_, parts):
        assert training.pins() == 0
        training.push()
        assert values_of(parts) == [-2.0] * 4


def test_a_copy_leaves_the_next_snapshot_its_room_on_the_disk(
    training: Training, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_weights.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 40}))
    with pytest.raises(Overloaded, match="40 bytes free"):
        pulled(training, reader)
    assert training.pins() == 0


def test_a_disk_that_takes_nothing_refuses_copies_and_holds_nothing(training: Training, reader: str) -> None:
    training.weights = OutgoingWeights(training.driver, Path("/proc"))
    training.weights._check_room = lambda size: None  # type: ignore[method-assign] # it has none, and says so
    with pytest.raises(Overloaded, match="can't write a copy"):
        pulled(training, reader)
    assert training.pins() == 0

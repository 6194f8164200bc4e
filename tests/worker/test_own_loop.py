"""A training loop of one's own against real servers in this process: batches, steps, ends, and what it may not do."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError, PlanMismatch, Stopped
from paceline.core.settings.config import Config, Options
from paceline.data.sampler import Sampler
from paceline.data.shards import open_shards
from paceline.rpc.auth import OPEN
from paceline.settings.load_settings import load
from paceline.sharder.sharding import make_shards
from paceline.v1 import run_service_pb2 as run_pb
from paceline.worker.command_line import ToldWorker
from tests.support.in_process import Cluster, Context, config_of

torch = pytest.importorskip("torch")
own_loop = pytest.importorskip("paceline.worker.own_loop")
loop_thread = pytest.importorskip("paceline.worker.loop_thread")
start = pytest.importorskip("paceline.worker.startup.start")
run_process = pytest.importorskip("paceline.worker.startup.run_process").run_process
worker_of = pytest.importorskip("paceline.worker.module_worker").worker_of
functional = torch.nn.functional
Connect = Callable[..., Any]


class Place:
    """The servers and shards of one run of the digits with one worker."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        settings = {"policy": "bsp", "servers": 2, "epochs": 1, "batch_size": 100} | settings
        self.config: Config = config_of(**settings)
        self.shards = folder / "shards"
        make_shards(self.config, self.shards)
        self.cluster = Cluster(self.config, folder)
        self.cluster.evaluator_ready()

    @property
    def start(self) -> Any:
        addresses = ",".join(self.cluster.addresses)
        told = ToldWorker(shards=self.shards, servers=addresses, device="cpu")
        return start.Start(told, self.config, OPEN)

    def connect(self, model: Any = None) -> Any:
        return own_loop.Session(self.start, model)

    @property
    def examples(self) -> int:
        return open_shards(self.shards).manifest.train_examples

    def labels(self, clock: int) -> Any:
        """What the sampler has for the clock: 13 steps of 100 examples at most make an epoch."""
        batch = Sampler([self.examples], 100, 13, self.config.seed, "worker-0").batch(clock)
        return open_shards(self.shards).shard(0).labels[batch.rows]

    def weights(self) -> Any:
        """The servers' newest."""
        found = own_loop.Session(self.start)
        found.close()
        return flat(found.model)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def begin(**settings: Any) -> Place:
        made.append(Place(tmp_path, **settings))
        return made[-1]

    yield begin
    for one in made:
        one.cluster.close()


def flat(model: Any) -> Any:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in model.parameters()])


def learn(session: Any, inputs: Any, targets: Any) -> None:
    session.zero_grad()
    loss = functional.cross_entropy(session.model(inputs), targets)
    loss.backward()
    session.step(loss)


def test_an_own_loop_gives_the_same_bits_as_the_standard_one_on_either_transport(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    own = place(epochs=2, transport="grpc")
    with own.connect() as session:
        for inputs, targets in session.loader():
            learn(session, inputs, targets)
    assert session.is_over
    ours = flat(session.model)

    standard, workers = Place(tmp_path / "standard", epochs=2), list[Any]()

    def work(around: Any, shards: Any) -> None:
        workers.append(worker_of(standard.start, around, shards))
        workers[0].run()

    run_process(standard.start, work)
    standard.cluster.close()
    assert torch.equal(ours, torch.from_numpy(workers[0].replica.local))


def test_the_loader_gives_the_workers_mini_batches_until_the_budget_is_spent(place: Callable[..., Place]) -> None:
    run, taken = place(policy="asp", seed=3), list[Any]()
    with run.connect() as session:
        for inputs, targets in session.loader():
            taken.append(targets)
            learn(session, inputs, targets)
    examples = run.examples
    assert sum(map(len, taken[:13])) == examples
    assert 13 <= len(taken) <= 15  # the chief stops at 13; its word may be a clock late
    assert all(np.array_equal(labels.numpy(), run.labels(clock)) for clock, labels in enumerate(taken, 1))
    assert list(session.loader()) == []


def test_a_loop_that_leaves_early_goes_on_with_the_mini_batch_that_it_did_not_step(place: Callable[..., Place]) -> None:
    run, taken = place(policy="asp"), list[Any]()
    with run.connect() as session:
        for inputs, targets in session.loader():
            if len(taken) == 5:
                break
            taken.append(targets)
            learn(session, inputs, targets)
    assert session.is_over
    with run.connect() as again:
        _, sixth = next(again.loader())
    assert np.array_equal(sixth.numpy(), run.labels(6))
    assert not np.array_equal(sixth.numpy(), run.labels(5))


def test_a_seat_that_is_lost_is_taken_again_inside_a_step(place: Callable[..., Place]) -> None:
    run = place(policy="asp")
    with run.connect() as session:
        batches = session.loader()
        learn(session, *next(batches))
        run.cluster.run.Leave(run_pb.LeaveRequest(worker="worker-0", incarnation=1), Context())
        learn(session, *next(batches))  # refused: its seat is gone
        learn(session, *next(batches))
        seat = run.cluster.servers[0].chief.run.membership.view.seats["worker-0"]
    assert seat.incarnation == 2


def test_after_a_step_the_model_has_the_weights_of_the_servers(place: Callable[..., Place]) -> None:
    run = place(policy="asp")
    with run.connect() as session:
        batches = session.loader()
        learn(session, *next(batches))
        here = flat(session.model)
    assert torch.equal(here, run.weights())


def test_gradients_that_are_not_finite_change_nothing(place: Callable[..., Place]) -> None:
    run = place(policy="asp")
    with run.connect() as session:
        before, batches = flat(session.model), session.loader()
        next(batches)
        for parameter in session.model.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)
        session.step()
        assert torch.equal(flat(session.model), before)
        learn(session, *next(batches))
        assert not torch.equal(flat(session.model), before)


def test_a_policy_with_local_steps_pushes_with_every_fourth_call(place: Callable[..., Place]) -> None:
    run = place(policy=Options(name="local_sgd", steps=4))
    with run.connect() as session:
        for count, (inputs, targets) in enumerate(session.loader(), 1):
            learn(session, inputs, targets)
            if count == 6:
                break
    assert run.cluster.metric("updates_total", policy="local_sgd") == 1


def test_a_mini_batch_without_a_step_is_refused(place: Callable[..., Place]) -> None:
    with place().connect() as session, pytest.raises(ConfigError, match=r"without session.step\(\) for the last one"):
        for _ in session.loader():
            pass


def test_a_step_after_the_end_is_refused(place: Callable[..., Place]) -> None:
    session = place().connect()
    session.close()
    session.close()
    with pytest.raises(ConfigError, match="after the end of the run"):
        session.step()


def test_a_model_that_is_not_the_tasks_is_refused(place: Callable[..., Place]) -> None:
    run = place()
    run.connect().close()
    with pytest.raises(PlanMismatch, match="the same names, order and shapes"):
        run.connect(torch.nn.Linear(64, 10))


def test_a_worker_that_is_told_to_stop_hears_it_from_its_next_step(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(loop_thread, "stop_on_signals", lambda: told.append((threading.Event(), [])) or told[0])
    with place(policy="asp").connect() as session:
        batches = session.loader()
        learn(session, *next(batches))
        inputs, targets = next(batches)
        told[0][0].set()
        with pytest.raises(Stopped):
            learn(session, inputs, targets)


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"precision": "bf16"}, {"compile": True}, {"overlap": True}])
def test_what_only_the_standard_loop_does_is_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"^{name} is .* a training loop of your own computes the gradients"):
        load(None, {"loop": "mine.py", **settings})
    with pytest.raises(ConfigError, match=f"^{name} is .* a training loop of your own computes the gradients"):
        own_loop.Session(SimpleNamespace(config=Config(**settings)))

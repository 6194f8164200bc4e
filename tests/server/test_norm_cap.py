"""push_norm_cap on real servers in one process: over both transports, dense and sparse, coded, sent again, and counted by
worker."""

import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Dense, Push, Seat, Sparse, View
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.settings_pb2 import Policy
from paceline.worker.linear.linear_worker import SparseClient
from tests.support.in_process import LENGTH, SHAPES, Cluster, Context, config_of, seated
from tests.support.processes import eventually

OF_NORM_5 = 5 / math.sqrt(LENGTH)
"""In each element of the model, which one server holds."""

Begin = Callable[..., Cluster]


@pytest.fixture(params=["grpc", "lane"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as made:

        def start(policy: str = "asp", **settings: Any) -> Cluster:
            more = {"epochs": 100, "push_norm_cap": 1.0, "transport": request.param} | settings
            return made.enter_context(closing(Cluster(config_of(policy, **more), tmp_path)))

        yield start


def capped(cluster: Cluster) -> dict[str, float]:
    """The status's count of each worker."""
    status = cluster.run.Status(run_pb.StatusRequest(), Context())
    return {worker.worker: worker.figures["capped"] for worker in status.workers if "capped" in worker.figures}


def test_a_push_of_norm_5_with_a_cap_of_1_moves_the_model_by_a_fifth(begin: Begin) -> None:
    cluster = begin()
    (pusher,) = seated(cluster)

    pusher.push(OF_NORM_5)
    assert pusher.model.tolist() == pytest.approx([-OF_NORM_5 / 5] * LENGTH, rel=1e-6)
    pusher.push(OF_NORM_5 / 10)  # below the cap
    assert pusher.model.tolist() == pytest.approx([-0.3 * OF_NORM_5] * LENGTH, rel=1e-6)
    pusher.push(None)

    assert capped(cluster) == {"worker-0": 1}
    assert cluster.metric("pushes_capped_total", worker="worker-0") == 1


def test_below_the_cap_the_model_has_the_bits_that_were_pushed(begin: Begin) -> None:
    cluster = begin()
    (pusher,) = seated(cluster)
    expected = np.float32(0)

    for value in np.float32([0.1, 1 / 30, 0.07, -0.15]):
        pusher.push(value)
        expected -= value

    assert pusher.model.tobytes() == np.full(LENGTH, expected).tobytes()
    assert capped(cluster) == {"worker-0": 0}


def test_without_a_cap_nothing_is_measured(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.core.slice.norm_cap.l2_norm", lambda values: pytest.fail("a norm was taken"))
    cluster = begin(push_norm_cap=None)
    (pusher,) = seated(cluster)

    pusher.push(1e30)

    assert pusher.model[0] == np.float32(-1e30)
    assert not cluster.servers[0].registry.get_sample_value(
        "paceline_server_pushes_capped_total", {"worker": "worker-0"}
    )


def test_each_server_caps_what_it_gets(begin: Begin) -> None:
    cluster = begin(servers=2)
    (pusher,) = seated(cluster)

    pusher.push(5.0)

    moved = {round(float(value), 6) for value in pusher.model}
    assert moved == {round(-1 / math.sqrt(length), 6) for length in (16, 24)}


@pytest.mark.parametrize("codec", ["fp16", "bf16", "int8", "topk"])
def test_what_is_capped_is_what_the_codec_brings(begin: Begin, codec: str) -> None:
    cluster = begin(codec={"push": codec, "error_feedback": False})
    (pusher,) = seated(cluster)

    pusher.push(1e4)

    assert np.linalg.norm(pusher.model.astype(np.float64)) == pytest.approx(1, rel=1e-6)
    assert capped(cluster) == {"worker-0": 1}


def test_a_round_stays_whole_and_its_mean_has_the_capped_push(begin: Begin) -> None:
    cluster = begin("bsp", workers=2)
    pushers = seated(cluster)

    with ThreadPoolExecutor(2) as threads:
        heads = list(threads.map(lambda pusher, value: pusher.push(value)[0], pushers, (1000.0, 0.1)))

    assert {(head.outcome, head.version) for head in heads} == {(pb.OUTCOME_BUFFERED, 1)}
    mean = (1 / math.sqrt(LENGTH) + 0.1) / 2
    assert pushers[0].model.tolist() == pytest.approx([-mean] * LENGTH, rel=1e-6)
    assert capped(cluster) == {"worker-0": 1, "worker-1": 0}


@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_a_sparse_push_is_capped_and_its_worker_learns_what_became_of_it(begin: Begin, codec: str) -> None:
    cluster = begin(updates="sparse", codec={"push": codec})
    (pusher,) = seated(cluster)
    client = SparseClient(pusher.around, make_plan(SHAPES, 1, cluster.config.plan))
    client.attach(pusher.incarnation)
    client.pull(pusher.model)
    change = Sparse(np.array([3, 20]), np.array([30, -40], np.float32), LENGTH)

    (answer,) = client.begin_sparse(1, pusher.view, change, 1, client.bases)()

    assert answer.weights.places.tolist() == [3, 20]
    assert answer.weights.values.tolist() == pytest.approx([0.6, -0.8], rel=1e-6)
    assert capped(cluster) == {"worker-0": 1}


def test_a_push_that_is_sent_again_counts_once(begin: Begin) -> None:
    driver = begin().servers[0].driver
    driver.adopt(SHAPES, make_plan(SHAPES, 1, driver.config.plan).hash, "worker-0")
    driver.initialise(np.zeros(LENGTH, np.float32), b"first")
    driver.view(View(1, {"worker-0": Seat(1, 0)}))

    for _ in range(3):  # the answer was lost twice
        update = Dense(np.full(LENGTH, OF_NORM_5, np.float32))
        driver.push(Push("worker-0", 1, 1, update, 1, Base(1, 0), 0, 0.0), None, lambda: True)

    assert driver.norm_cap.workers["worker-0"].pushes == 1


def test_a_push_that_is_sent_again_to_a_server_that_had_lost_it_is_capped_alike(begin: Begin, tmp_path: Path) -> None:
    cluster = begin(servers=2, checkpoint={"every": 600})
    (pusher,) = seated(cluster)
    pusher.push(0.01)
    folder, before, port = tmp_path / "server-1", tmp_path / "before", cluster.servers[1].port
    shutil.copytree(folder, before)

    pusher.push(7.0)
    acknowledged = pusher.model.copy()
    cluster.servers[1].close(grace=0)
    shutil.rmtree(folder)  # as if it had died: no snapshot has the pushes
    shutil.copytree(before, folder)
    cluster.servers[1] = cluster.begin(1, port)
    heads = pusher.push(None)

    assert [head.clock for head in heads] == [3, 3]
    pusher.client.pull(pusher.model)
    assert pusher.model.tobytes() == acknowledged.tobytes()
    assert cluster.metric("pushes_capped_total", server=1, worker="worker-0") == 1


def test_a_worker_that_is_capped_most_of_the_time_is_warned_of(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.server.run_servicer._FIGURES", 0.05)
    monkeypatch.setattr("paceline.server.run_servicer._STORED", 0.05)
    cluster = begin(workers=3, servers=2)
    pushers = seated(cluster)
    for _ in range(60):
        for pusher, value in zip(pushers, (0.01, 0.01, 1e6), strict=True):
            pusher.push(value)

    def warned() -> Any:
        return cluster.run.Status(run_pb.StatusRequest(), Context()).warnings

    (warning,) = eventually(warned, "a warning")
    assert (warning.kind, warning.passed, list(warning.settings)) == ("capped", False, [])
    assert warning.problem.startswith("worker-2: most of the last pushes had a norm above push_norm_cap (1)")
    assert capped(cluster) == {"worker-0": 0, "worker-1": 0, "worker-2": 60}
    assert cluster.metric("pushes_capped_total", server=1, worker="worker-2") == 60


def test_a_policy_that_pushes_weights_cannot_follow_in_a_run_with_a_cap(begin: Begin) -> None:
    cluster = begin()
    seated(cluster)

    with pytest.raises(ConfigError, match="push_norm_cap is 1, but workers of policy easgd push their weights"):
        cluster.run.SetPolicy(run_pb.SetPolicyRequest(policy=Policy(name="easgd")), Context())


def test_a_worker_cannot_say_itself_how_often_it_was_capped(begin: Begin) -> None:
    cluster = begin()
    (pusher,) = seated(cluster)
    pusher.push(OF_NORM_5)

    beat = run_pb.HeartbeatRequest(
        worker="worker-0", incarnation=1, clock=1, phase="WORKER_PHASE_DATA", figures={"capped": 0.0}
    )
    cluster.run.Heartbeat(beat, Context())

    assert capped(cluster) == {"worker-0": 1}

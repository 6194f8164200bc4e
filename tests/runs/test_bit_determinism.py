"""BSP from real processes gives the bits of one process that accumulates gradients in worker order
(docs/understand/rounds.md#rounds)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core import kernels
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.values import Vector
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import open_shards, take
from tests.support.numpy_worker import Softmax
from tests.support.processes import Cluster

OPTIMIZER = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001}


def in_one_process(replica: Any, shards: Path, rounds: int, workers: int = 2, batch: int = 32) -> Vector:
    """The weights after this number of rounds of one loop that shares samplers, kernels and the replica with the workers."""
    opened = open_shards(shards)
    sizes = opened.manifest.sizes
    steps = steps_per_epoch(sizes, [[rank] for rank in range(workers)], batch)
    samplers = [Sampler([sizes[rank]], batch, steps, 0, f"worker-{rank}") for rank in range(workers)]
    optimizer = Sgd(**{key: value for key, value in OPTIMIZER.items() if key != "name"})
    slots, total = optimizer.new_slots(replica.length), np.zeros(replica.length, np.float32)
    for clock in range(1, rounds + 1):
        examples = 0
        for rank, sampler in enumerate(samplers):
            features, labels = take([opened.shard(rank)], *sampler.batch(clock))
            seeds = np.random.SeedSequence([0, rank, clock])
            step = replica.gradient(features, labels, int(seeds.generate_state(1)[0]), np.random.default_rng(seeds))
            (kernels.add_scaled if examples else kernels.scale_into)(total, step.gradient, step.examples)
            examples += step.examples
        optimizer.step(replica.local, replica.local, total, 1.0 / examples, optimizer.lr, slots, clock)
        replica.refresh()
    return replica.local.copy()


def from_processes(cluster: Cluster, torch: bool, disturb: Callable[[Cluster, list[Any]], Any]) -> tuple[Vector, int]:
    """The final weights and the number of rounds of a run that something happens to."""
    sharder = cluster.sharder()
    cluster.servers()
    assert sharder.wait() == 0
    workers = [cluster.worker(rank, torch=torch) for rank in range(2)]
    cluster.ready()
    disturb(cluster, workers)
    assert [worker.wait() for worker in workers] == [0, 0]
    cluster.finish()
    states = cluster.states()
    (version,) = {state.table["version"] for _, state in states}
    model = np.empty(states[0][0].total, np.float32)
    for (plan, state), views in zip(states, states[0][0].split(model), strict=True):
        assert plan == states[0][0]
        start = 0
        for view in views:
            view[:] = state.weights[start : start + len(view)]
            start += len(view)
    return model, version


def nothing(cluster: Cluster, workers: list[Any]) -> None:
    return


def replace_a_worker(cluster: Cluster, workers: list[Any]) -> None:
    """kill -9 in the middle of a run, which is held there, then a new process under the same name, once before its lease lapses
    and once after."""
    cluster.until(lambda status: status.version > 20)
    workers[1].kill()
    workers[1] = cluster.worker(1)
    assert workers[1].wait_for("training")["clock"] >= 20
    workers[1].kill()
    cluster.processes[1].wait_for("lease lapsed", worker="worker-1")
    workers[1] = cluster.worker(1)
    cluster.hold(None)


@pytest.mark.nightly  # by day the test with torch, and test_lock_step_bits.py, which kills them all
@pytest.mark.parametrize(
    ("settings", "disturb"),
    [
        pytest.param({"servers": 1}, nothing, id="one server"),
        pytest.param({"servers": 3, "slow": {"1": "2x@20%"}}, nothing, id="three servers and a slow worker"),
        pytest.param({"transport": "grpc"}, nothing, id="by grpcio"),
        pytest.param(
            {"on_lost_worker": "wait", "epochs": 12, "heartbeat": 0.3, "lease": 1}, replace_a_worker, id="killed worker"
        ),
    ],
)
def test_the_bits_are_those_of_one_process(
    settings: dict[str, Any], disturb: Callable[[Cluster, list[Any]], Any], tmp_path: Path
) -> None:
    with Cluster(tmp_path, **({"epochs": 3, "optimizer": OPTIMIZER} | settings)) as cluster:
        if disturb is replace_a_worker:
            cluster.hold(60)
        model, rounds = from_processes(cluster, False, disturb)

        expected = in_one_process(Softmax(None), cluster.shards, rounds)

        assert rounds >= 3 * 20
        assert model.any()
        np.testing.assert_array_equal(model.view(np.uint32), expected.view(np.uint32))


def test_the_bits_are_those_of_one_process_with_torch(tmp_path: Path) -> None:
    from paceline.tasks.task import load_task
    from paceline.worker.training.model_and_gradient import Replica, use_threads

    with Cluster(tmp_path, epochs=3, optimizer=OPTIMIZER) as cluster:
        model, rounds = from_processes(cluster, True, nothing)

        use_threads(1)
        expected = in_one_process(Replica(load_task("digits"), "cpu", 0), cluster.shards, rounds)

        np.testing.assert_array_equal(model.view(np.uint32), expected.view(np.uint32))

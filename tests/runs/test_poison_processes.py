"""A member that pushes harm among real processes: what it does to the model with push_norm_cap, and without."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.support.nights import some
from tests.support.processes import Cluster

PLAIN = {"name": "sgd", "lr": 0.4, "momentum": 0.0, "weight_decay": 0.0}
WORKERS = 4
POISONED = WORKERS - 1
CAP = 0.6
"""Above the norm of nearly all gradients, of which 32 examples make even ones."""


def accuracy(model: np.ndarray) -> float:
    """Of softmax regression (`NUMPY_WORKER=softmax`) on all digits (ratio)."""
    inputs, labels = load_digits(return_X_y=True)
    scores = inputs / 16 @ model[:640].reshape(64, 10) + model[640:]
    return float((scores.argmax(axis=1) == labels).mean())


def model_of(cluster: Cluster) -> np.ndarray:
    """The model that the servers, which have ended, have kept."""
    states = cluster.states()
    model = np.empty(states[0][0].total, np.float32)
    for (_, state), (view,) in zip(states, states[0][0].split(model), strict=True):
        view[:] = state.weights
    return model


@pytest.mark.parametrize(
    ("policy", "transport", "cap"),
    some(
        [(*run, cap) for run in (("asp", "lane"), ("bsp", "grpc")) for cap in (CAP, None)],
        [("bsp", "grpc", CAP)],
    ),
)
def test_the_cap_bounds_what_a_poisoned_worker_does(
    tmp_path: Path, policy: str, transport: str, cap: float | None
) -> None:
    settings = {"transport": transport, "push_norm_cap": cap, "divergence": {"rollbacks": 0}}
    with Cluster(
        tmp_path, policy={"name": policy}, optimizer=PLAIN, workers=WORKERS, epochs=12, batch_size=32, **settings
    ) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        modes = ["poison" if rank == POISONED else "softmax" for rank in range(WORKERS)]
        workers = [cluster.worker(rank, mode=mode) for rank, mode in enumerate(modes)]
        cluster.ready()
        status = cluster.score()
        assert [worker.wait() for worker in workers] == [0] * WORKERS
        cluster.end_servers(0)
        found = accuracy(model_of(cluster))

    workers_of = {worker.worker: worker for worker in status.workers}
    poisoned = workers_of.pop(f"worker-{POISONED}")
    if cap is None:
        assert found < 0.2
        assert "capped" not in poisoned.figures
        return
    assert found > 0.8
    assert poisoned.figures["capped"] == poisoned.clock
    assert all(worker.figures["capped"] < worker.clock for worker in workers_of.values())
    (warned,) = [warning for warning in status.warnings if warning.kind == "capped"]
    assert f"worker-{POISONED}" in warned.said

"""A parameter server on Ray: an actor for each server, called with the gradient, answering the weights.

Ray copies each array once into its store of shared memory and hands out views of it, so on one machine nothing goes
through sockets; between machines it would. An actor folds one push at a time; workers run free of each other
(asynchronous). Needs the environment `ray`.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numba
import numpy as np
import ray  # type: ignore[import-not-found]

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, parser, play

_QUIET: dict[str, Any] = {"namespace": "benchmark", "log_to_driver": False, "logging_level": "error"}


@numba.njit(error_model="numpy", nogil=True)
def _sgd(weights: Vector, gradient: Vector, velocity: Vector, lr: Any, momentum: Any, decay: Any) -> None:
    for i in range(weights.size):
        velocity[i] = momentum * velocity[i] + gradient[i] + decay * weights[i]
        weights[i] -= lr * velocity[i]


class ParameterServer:
    """One part of the model and its optimizer."""

    def __init__(self, elements: int) -> None:
        self._weights = np.zeros(elements, np.float32)
        self._velocity = np.zeros(elements, np.float32)

    def push_pull(self, gradient: Vector) -> Vector:
        """Fold a gradient and answer the weights."""
        settings = np.float32(LEARNING_RATE), np.float32(MOMENTUM), np.float32(WEIGHT_DECAY)
        _sgd(self._weights, gradient, self._velocity, *settings)
        return self._weights

    def pull(self) -> Vector:
        """The weights as they are."""
        return self._weights


def serve(door: Path, job: Job, server: int, announce: Callable[[str], None]) -> None:
    """A process that keeps one actor alive; server 0 also starts Ray."""
    cut = job.cuts()[server]
    if server == 0:
        store = 8 * job.elements * (job.workers + 2)  # gradients and answers under way
        cpus = job.servers + job.workers
        found = ray.init(num_cpus=cpus, object_store_memory=max(store, 1 << 28), include_dashboard=False, **_QUIET)
        (door.parent / "begun").write_text(found.address_info["gcs_address"])
        (door.parent / "begun").replace(door)
    else:
        ray.init(address=_address(door), **_QUIET)
    actor = ray.remote(ParameterServer).options(name=f"server-{server}", num_cpus=1).remote(cut.stop - cut.start)
    ray.get(actor.pull.remote())
    announce(f"server-{server}")
    threading.Event().wait()


def _address(door: Path) -> str:
    while not door.exists():
        time.sleep(0.05)
    return door.read_text()


class RayWorker:
    """A worker that calls all servers at the same time."""

    def __init__(self, door: Path, job: Job, rank: int, servers: Sequence[str]) -> None:
        ray.init(address=_address(door), **_QUIET)
        self._servers = [(ray.get_actor(name), cut) for name, cut in zip(servers, job.cuts(), strict=True)]
        self._model: list[Vector] = []

    def iterate(self, gradient: Vector) -> None:
        self._model = []  # so that the store may use its memory again
        self._model = ray.get([actor.push_pull.remote(gradient[cut]) for actor, cut in self._servers])

    def weights(self) -> Vector:
        return np.concatenate(ray.get([actor.pull.remote() for actor, _ in self._servers]))


def main() -> None:
    job = job_of(parser(__doc__).parse_args())
    with tempfile.TemporaryDirectory() as folder:
        door = Path(folder) / "ray"
        play(
            job,
            partial(serve, door),
            partial(RayWorker, door),
            servers=job.servers,
            workers=job.workers,
            folds=job.workers * job.iterations,
        )


if __name__ == "__main__":
    # Ray and multiprocessing send classes by module name: run under the importable one.
    from benchmarks.peers import ray_ps

    ray_ps.main()

"""TensorFlow's ParameterServerStrategy: variables on `ps` tasks, steps sent to `worker` tasks by a coordinator.

Each step runs on a worker task: its gradient travels to the parameter servers, which add the weight decay and apply
TensorFlow's fused momentum kernel (the one under its SGD optimizers), then the new variables travel back into the
worker's own copy. Steps of several workers are scheduled at the same time and fold as they come (asynchronous); which
worker takes which step is the coordinator's choice, as usual there. Needs the environment `tensorflow`.
"""

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, parser, play

Cluster = dict[str, list[str]]
"""Task kind -> addresses, the same in every process."""


def serve(cluster: Cluster, job: Job, server: int, announce: Callable[[str], None]) -> None:
    """A task process: the first `servers` are parameter servers, the others are workers."""
    kind, task = ("ps", server) if server < job.servers else ("worker", server - job.servers)
    listener = tf.distribute.Server(cluster, job_name=kind, task_index=task, protocol="grpc", start=True)
    announce(cluster[kind][task])
    listener.join()


class Coordinator:
    """The process that would hold the training program: schedules one step for each worker and waits for all."""

    def __init__(self, cluster: Cluster, folder: str, job: Job, _: int, __: Sequence[str]) -> None:
        spec = tf.train.ClusterSpec(cluster)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._job = job
        with strategy.scope():  # round robin over the servers, so a part and its velocity are on the same one
            self._parts = [tf.Variable(lambda size=size: tf.zeros(size)) for size in _sizes(job)]
            self._velocities = [tf.Variable(lambda size=size: tf.zeros(size)) for size in _sizes(job)]
        self._gradients = self._deal(Path(folder) / "gradient")
        self._step = tf.function(self._trace)

    def _deal(self, file: Path) -> Any:
        """Every worker task's own copy of the gradient, in its memory; a file keeps it out of the graph."""
        self._job.gradient().tofile(file)

        def read() -> Any:
            content = tf.data.Dataset.from_tensors(str(file)).map(
                lambda name: tf.io.decode_raw(tf.io.read_file(name), tf.float32)
            )
            return content.cache().repeat()

        return iter(self._coordinator.create_per_worker_dataset(read))

    def _trace(self, gradients: Any) -> list[Any]:
        """One step on a worker task; what it returns stays there."""
        gradient = next(gradients)
        for part, velocity, cut in zip(self._parts, self._velocities, self._job.cuts(), strict=True):
            mine = gradient if self._job.servers == 1 else gradient[cut]
            with tf.device(part.device):
                tf.raw_ops.ResourceApplyKerasMomentum(
                    var=part.handle,
                    accum=velocity.handle,
                    lr=LEARNING_RATE,
                    grad=mine + WEIGHT_DECAY * part,
                    momentum=MOMENTUM,
                    use_locking=True,
                )
        return [tf.identity(part) for part in self._parts]

    def iterate(self, _: Vector) -> None:
        self._models = [
            self._coordinator.schedule(self._step, args=(self._gradients,)) for _ in range(self._job.workers)
        ]
        self._coordinator.join()

    def weights(self) -> Vector:
        return np.concatenate([part.numpy() for part in self._parts])


def _sizes(job: Job) -> list[int]:
    return [cut.stop - cut.start for cut in job.cuts()]


def _cluster(job: Job) -> Cluster:
    """Addresses on free ports; every task must know all of them before it starts."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(job.servers + job.workers)]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
    for listener in sockets:
        listener.close()
    return {"ps": addresses[: job.servers], "worker": addresses[job.servers :]}


def main() -> None:
    job = job_of(parser(__doc__).parse_args())
    cluster = _cluster(job)
    with tempfile.TemporaryDirectory() as folder:
        play(
            job,
            partial(serve, cluster),
            partial(Coordinator, cluster, folder),
            servers=job.servers + job.workers,
            workers=1,
            folds=job.workers * job.iterations,
        )


if __name__ == "__main__":
    main()

"""Paceline without servers: the ring allreduce of `paceline.worker.peers.other_workers` on the lane, then own SGD steps.

What gloo.py does, by our own means; `--servers` means nothing to it. The gradient is given, so no torch is loaded.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, nothing, parser, play
from paceline.core.codecs.codec import load_codec
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.topology import build_topology
from paceline.core.policies.policy import Own
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials
from paceline.rpc.malloc import MALLOC_ENVIRONMENT, tune_malloc
from paceline.v1.run_service_pb2 import Peer
from paceline.worker.peers.other_workers import Peers
from paceline.worker.peers.peer_server import PeerServer


class RingWorker:
    """One rank: its own copy of the model and of the optimizer."""

    def __init__(self, folder: Path, codec: str, job: Job, rank: int, _: Sequence[str]) -> None:
        tune_malloc()
        plan, part_bytes, shown = (
            make_plan([("model", (job.elements,))], 0, Config().plan),
            Config().part_bytes,
            Credentials(),
        )
        self._peers = Peers(
            f"worker-{rank}", shown, "lane", plan, load_codec(codec), part_bytes, lambda event, **facts: None
        )
        server = PeerServer(plan, part_bytes, shown, 0, "lane", self._peers, job.workers)
        (folder / f"{rank}.new").write_text(f"127.0.0.1:{server.port}")
        (folder / f"{rank}.new").replace(folder / str(rank))
        doors = [folder / str(other) for other in range(job.workers)]
        while not all(door.exists() for door in doors):
            time.sleep(0.02)
        members = [
            Peer(worker=f"worker-{other}", incarnation=1, address=door.read_text()) for other, door in enumerate(doors)
        ]
        self._peers.heard(1, members)
        optimizer = build_optimizer(Options(name="sgd", lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY))
        own = Own(np.zeros(job.elements, np.float32), optimizer, LEARNING_RATE)
        own.slots = optimizer.new_slots(job.elements)
        policy, ring = build_peer_policy(Options(name="allreduce")), build_topology(Options(name="ring"))
        self._seen = np.zeros(job.elements, np.float32)
        self._peers.begin(1, policy, ring, own, rank, True, lambda: None)

    def iterate(self, gradient: Vector) -> None:
        """As a worker's loop does, with the copy of the model that the gradient is taken at."""
        self._peers.start_step(self._seen)
        self._peers.end_step(gradient, lambda: None)

    def weights(self) -> Vector:
        with self._peers.model() as model:
            return model


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--codec", default="none", help="as what sums travel: none, fp16 or bf16")
    arguments = options.parse_args()
    job = job_of(arguments)
    os.environ.update(MALLOC_ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        join = partial(RingWorker, Path(folder), arguments.codec)
        tolerance = 1e-4 if load_codec(arguments.codec).lossless else 2e-2
        play(job, nothing, join, servers=0, workers=job.workers, folds=job.iterations, tolerance=tolerance)


if __name__ == "__main__":
    main()

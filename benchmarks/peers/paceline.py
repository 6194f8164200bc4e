"""Paceline itself: `paceline.server.server.Server` and the worker's links, as the server's and worker's processes use them.

The gradient is given, so no torch is loaded. Snapshots are put off and pushes are not retained, since no peer does either; with
`--retain` the workers keep their newest pushes, as they do in a run.
"""

import argparse
import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, parser, play
from paceline.core.codecs.codec import load_codec
from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes
from paceline.rpc.auth import Credentials
from paceline.rpc.malloc import MALLOC_ENVIRONMENT, tune_malloc
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.worker.surroundings import Surroundings
from paceline_papers.reproduce.exchanges import FOREVER, Pusher


@dataclass(frozen=True)
class Options:
    """How Paceline is set for one measurement."""

    policy: str
    codec: str
    transport: str
    folder: Path
    tls: bool
    retain: int = 0
    """Bytes of pushes that each worker keeps."""

    @property
    def credentials(self) -> Credentials:
        """What its processes show."""
        return Credentials(tls=self.folder if self.tls else None)

    def config(self, job: Job) -> Config:
        """The run's config."""
        return Config.model_validate(
            {
                "task": "benchmark",
                "transport": self.transport,
                "epochs": 1_000_000,
                "workers": job.workers,
                "servers": job.servers,
                "policy": {"name": self.policy},
                "schedule": {"lr_scale": "none"},
                "codec": {"push": self.codec, "pull": self.codec},
                "checkpoint": {"every": FOREVER, "retain": self.retain},
                "optimizer": {"name": "sgd", "lr": LEARNING_RATE, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY},
            }
        )


def shapes(job: Job) -> Shapes:
    """The model: one tensor."""
    return [("model", (job.elements,))]


def serve(options: Options, job: Job, index: int, announce: Callable[[str], None]) -> None:
    """A server process. Server 0 leaves its address where the others find it."""
    tune_malloc()
    door = options.folder / "chief"
    while index and not door.exists():
        time.sleep(0.05)
    chief = door.read_text() if index else ""
    told = ToldServer(index=index, folder=options.folder / str(index), chief=chief)
    server = Server(options.config(job), told, options.credentials)
    server.start()
    address = f"localhost:{server.port}"
    if not index:
        (options.folder / "door").write_text(address)
        (options.folder / "door").replace(door)
    announce(address)
    threading.Event().wait()


class PacelineWorker:
    """A worker process's links to all servers, seated in the run."""

    def __init__(self, options: Options, job: Job, rank: int, addresses: Sequence[str]) -> None:
        tune_malloc()
        around = Surroundings(
            config=options.config(job),
            name=f"worker-{rank}",
            addresses=addresses,
            credentials=options.credentials,
            patience=FOREVER,
        )
        self._pusher = Pusher(around, shapes(job), rank, self.first_weights(job.elements))

    def first_weights(self, elements: int) -> Vector:
        """What training begins with."""
        return np.zeros(elements, np.float32)

    def iterate(self, gradient: Vector) -> None:
        self._pusher.push(gradient)

    def weights(self) -> Vector:
        self._pusher.pull()
        return self._pusher.model


def main() -> None:
    arguments = _parser().parse_args()
    os.environ.update(MALLOC_ENVIRONMENT)
    job = job_of(arguments)
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            arguments.policy,
            arguments.codec,
            arguments.transport,
            Path(folder),
            arguments.tls,
            arguments.retain,
        )
        if arguments.tls:
            from tools.authority import Authority

            Authority().write(options.folder)
        folds = job.iterations if arguments.policy == "bsp" else job.workers * job.iterations
        play(
            job,
            functools.partial(serve, options),
            functools.partial(PacelineWorker, options),
            servers=job.servers,
            workers=job.workers,
            folds=folds,
            tolerance=1e-4 if load_codec(arguments.codec).lossless else 2e-2,
        )


def _parser() -> argparse.ArgumentParser:
    options = parser(__doc__)
    options.add_argument("--policy", default="asp")
    options.add_argument("--codec", default="none")
    options.add_argument("--transport", default="grpc", choices=("grpc", "lane"))
    options.add_argument("--tls", action="store_true", help="mutual TLS, by a new CA")
    options.add_argument("--retain", type=int, default=0, help="bytes of pushes that each worker keeps")
    return options


if __name__ == "__main__":
    main()

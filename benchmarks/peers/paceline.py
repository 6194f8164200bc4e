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
from benchmarks.layouts import LAYOUTS, layout
from paceline.core.coding.codec import load_codec
from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes, make_plan
from paceline.core.values import Dense
from paceline.rpc.auth import Credentials
from paceline.rpc.malloc import MALLOC_ENVIRONMENT, tune_malloc
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.surroundings import Surroundings

FOREVER = 3600.0


@dataclass(frozen=True)
class Options:
    """How Paceline is set for one measurement."""

    policy: str
    codec: str
    slices: str
    layout: str
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
                "plan": {"slices": self.slices},
                "schedule": {"lr_scale": "none"},
                "codec": {"push": self.codec, "pull": self.codec},
                "checkpoint": {"every": FOREVER, "retain": self.retain},
                "optimizer": {"name": "sgd", "lr": LEARNING_RATE, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY},
            }
        )

    def shapes(self, job: Job) -> Shapes:
        """The model's tensors: a known layout, or one tensor of the size asked for."""
        return layout(self.layout) if self.layout else [("model", (job.elements,))]


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
        config, name, stop = options.config(job), f"worker-{rank}", threading.Event()
        around = Surroundings(
            config=config,
            name=name,
            addresses=addresses,
            credentials=options.credentials,
            stop=stop,
            deadline=time.monotonic() + FOREVER,
        )
        plan = make_plan(options.shapes(job), job.servers, config.plan)
        chief = ChiefClient(around)
        if rank == 0:  # replaces the evaluator, without which no run starts
            threading.Thread(target=chief.evaluate, args=(None,), daemon=True).start()
        self._model = self.first_weights(plan.total)
        self._client = ParameterClient(around, plan)
        joined = chief.join(False, 1, 1, "", job.workers)
        assert joined is not None
        self._clock = 0
        threading.Thread(target=self._beat, args=(chief, joined.incarnation, config.heartbeat), daemon=True).start()
        self._client.attach(joined.incarnation)
        if joined.place == 0:
            self._client.initialise(self._model)
        seat = chief.seat(joined.incarnation, 0)
        assert seat is not None
        self._client.pull(self._model)
        self._view = seat.view

    def first_weights(self, elements: int) -> Vector:
        """What training begins with."""
        return np.zeros(elements, np.float32)

    def iterate(self, gradient: Vector) -> None:
        self._clock += 1
        self._client.push_pull(self._clock, self._view, Dense(gradient), 1, lambda server, head: self._model)

    def weights(self) -> Vector:
        self._client.pull(self._model)
        return self._model

    def _beat(self, chief: ChiefClient, incarnation: int, every: float) -> None:
        while True:
            chief.beat(incarnation, self._clock, "exchange", 0.0, {})
            time.sleep(every)


def _silent(event: str, **facts: object) -> None:
    return


def main() -> None:
    arguments = _parser().parse_args()
    os.environ.update(MALLOC_ENVIRONMENT)
    job = job_of(arguments)
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            arguments.policy,
            arguments.codec,
            arguments.slices,
            arguments.layout,
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
    options.add_argument("--slices", default="memorywise", choices=("whole", "layerwise", "memorywise"))
    options.add_argument("--layout", default="", choices=("", *LAYOUTS), help="the model's tensors; default: one")
    return options


if __name__ == "__main__":
    main()

"""Paceline's sparse SVM: `paceline.server.server.Server` and `paceline.worker.linear.linear_worker.LinearWorker`, as
processes use them. Snapshots are put off, and nobody scores while it trains: the peers do neither."""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contender import WrongResult
from benchmarks.peers.svm_team import BATCH, LEARNING_RATE, Final, Job
from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Config
from paceline.data.shards import Shards, open_shards
from paceline.rpc.malloc import tune_malloc
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.worker.linear.linear_worker import LinearWorker
from paceline.worker.surroundings import Surroundings

FOREVER = 3600.0


def config(job: Job, passes: float) -> Config:
    """The run's settings."""
    return Config.model_validate(
        {
            "task": "svm",
            "updates": "sparse",
            "policy": from_shorthand(job.policy),
            "overlap": job.overlap,
            "transport": job.transport,
            "epochs": math.ceil(passes),
            "workers": job.workers,
            "servers": job.servers,
            "batch_size": BATCH,
            "batch": "worker",
            "optimizer": {"name": "sgd", "lr": LEARNING_RATE, "momentum": 0.0, "weight_decay": 0.0},
            "schedule": {"lr_scale": "none"},
            "checkpoint": {"every": FOREVER},
            "svm": {"batches": job.batches, "pull": job.pull, "validation": 0.0},
        }
    )


class PacelineServer:
    """A server of one training."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.address = f"127.0.0.1:{server.port}"

    def final(self) -> Final:
        published = self._server.driver.pull(None, lambda: True)
        if published is None:
            raise WrongResult("The server has no weights to give.")
        return Final(published.values, self._counted("received"), self._counted("sent"))

    def _counted(self, name: str) -> float:
        return self._server.registry.get_sample_value(f"paceline_server_{name}_bytes_total") or 0.0


class Part(LinearWorker):
    """A worker of a run that ends before its last pass is over where the passes are no whole number."""

    def __init__(self, passes: float, around: Surroundings, shards: Shards) -> None:
        self._share = passes / around.config.epochs
        super().__init__(around, shards)

    @property
    def train_examples(self) -> int:
        return round(self._share * super().train_examples)


@contextmanager
def serve(job: Job, index: int, passes: float, chief: str) -> Iterator[PacelineServer]:
    """Serves one training; nobody is the evaluator, without which no run starts."""
    tune_malloc(kept=16 << 20)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(config(job, passes), ToldServer(index=index, folder=Path(folder), chief=chief))
        if server.chief is not None:
            with server.chief.changed:
                server.chief.run.ready(time.monotonic())
        server.start()
        try:
            yield PacelineServer(server)
        finally:
            server.close(grace=0)


def work(
    job: Job, rank: int, passes: float, addresses: Sequence[str], ready: Callable[[], None], done: Callable[[], None]
) -> None:
    """Joins, trains and leaves."""
    tune_malloc()

    def say(event: str, **facts: object) -> None:
        if event == "training":
            ready()
        elif event == "done":
            done()

    around = Surroundings(config=config(job, passes), name=f"worker-{rank}", addresses=addresses, say=say)
    Part(passes, around, open_shards(job.shards)).run()

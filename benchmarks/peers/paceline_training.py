"""Paceline in real processes, as `paceline run` starts them, but for the evaluator: this process replaces it. It
pulls the weights at the end of each epoch, and scores them when the training is over."""

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.contender import WrongResult
from benchmarks.training import Snapshot, arguments, tell
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.data.sampler import steps_per_epoch
from paceline.data.shards import Shards
from paceline.launch.status.chief_status import RemoteChief
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.this_machine.child_environment import child_environment
from paceline.rpc.auth import OPEN
from paceline.rpc.enums import phase_of
from paceline.tasks.task import load_task
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import Replica

T = TypeVar("T")
PATIENCE = 60.0
"""Longest wait for a process to do what must come next (seconds)."""


class Cluster:
    """The servers and workers of one run in one folder."""

    def __init__(self, settings: Path, config: Config, shards: Shards, folder: Path) -> None:
        self._settings = settings
        self._config = config
        self._shards = shards
        self._folder = folder
        self.children: list[Child] = []
        self.addresses: list[str] = []

    def serve(self) -> None:
        """Starts the servers, one after the other."""
        for index in range(self._config.servers):
            report = self._folder / f"ports-{index}.json"
            chief = ["--chief", self.addresses[0]] if index else []
            place = ["--index", str(index), "--folder", str(self._folder / f"server-{index}"), "--report", str(report)]
            server = self._start(f"server-{index}", "server", *place, *chief)
            self.awaited(lambda: _port(report), f"{server.name} listens")  # noqa: B023
            self.addresses.append(f"127.0.0.1:{_port(report)}")

    def work(self, has_joined: Callable[[str], bool]) -> None:
        """Starts the workers in turn, so that each gets the shard of its number, as the peer's ranks do."""
        for rank in range(self._config.workers):
            place = ["--rank", str(rank), "--shards", str(self._shards.folder), "--servers", ",".join(self.addresses)]
            worker = self._start(f"worker-{rank}", "worker", *place, "--device", "cpu", "--threads", "1")
            self.awaited(lambda: has_joined(worker.name), f"{worker.name} joins")  # noqa: B023

    def awaited(self, found: Callable[[], T], what: str) -> T:
        """The first true result; WrongResult where a process ends before that, or the time is over."""
        end = time.monotonic() + PATIENCE
        while not (result := found()):
            for child in self.children:
                if not child.running:
                    last = (child.tail().splitlines() or ["nothing"])[-1].strip()
                    raise WrongResult(f"{child.name} {child.how_it_ended()}. Its last words: {last}")
            if time.monotonic() > end:
                raise WrongResult(f"{what}: did not happen within {PATIENCE:g} s.")
            time.sleep(0.02)
        return result

    def _start(self, name: str, module: str, *more: str) -> Child:
        command = ["-m", f"paceline.{module}", "--config", str(self._settings), *more]
        child = Child(name, module, command, self._folder / f"{name}.log", child_environment(threads=1))
        self.children.append(child)
        child.start()
        return child


def _port(report: Path) -> int:
    """Where a server listens; 0 until it does."""
    return int(json.loads(report.read_text())["port"]) if report.exists() else 0


def observe(cluster: Cluster, config: Config, shards: Shards) -> list[Snapshot]:
    """Trains to the end; returns the weights at the end of each epoch, with the chief's time."""
    cluster.serve()
    run = RemoteChief(cluster.addresses[0], OPEN)
    around = Surroundings(config=config, name="evaluator", addresses=cluster.addresses, patience=1e6)
    client = ChiefClient(around)
    threading.Thread(target=client.evaluate, args=(None,), daemon=True).start()  # the run starts without its scores
    replica = Replica(load_task(config.task, config.model), "cpu", config.seed)
    plan = make_plan(replica.shapes, config.servers, config.plan)
    weights = ParameterClient(around, plan)
    cluster.work(lambda worker: (status := run.status()) is not None and worker in {w.worker for w in status.workers})
    cluster.awaited(lambda: (status := run.status()) is not None and phase_of(status) == "training", "the run starts")

    sizes, snapshots = shards.manifest.sizes, []
    steps = steps_per_epoch(sizes, [[owned] for owned in range(config.workers)], config.worker_batch)
    for epoch in range(1, config.epochs + 1):
        target = np.empty_like(replica.local)
        versions = weights.pull(target, epoch * steps)
        status = run.status()
        if status is None or set(versions) != {epoch * steps}:
            raise WrongResult(f"Epoch {epoch} ends with version {epoch * steps}, but versions {versions} came.")
        snapshots.append(Snapshot(status.seconds, target))
    return snapshots


def _silent(event: str, **facts: object) -> None:
    return


def main() -> None:
    settings, config, shards = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(settings, config, shards, Path(folder))
        try:
            snapshots = observe(cluster, config, shards)
        finally:
            end_all(cluster.children, lambda: True)
    tell(config, shards, snapshots)


if __name__ == "__main__":
    main()

"""A run that trains in this process: its folder as `paceline run` makes it, its servers, and a worker that pushes."""

from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.slice.plan import make_plan
from paceline.core.values import AS_SET, Dense
from paceline.launch.folder.run_folder import RunFolder
from paceline.rpc.auth import Credentials
from paceline.worker.exchange.parameter_client import ParameterClient
from tests.support.in_process import Cluster, Pusher
from tests.support.trained_run import trained_run


class LiveRun:
    """A run of a task that has begun, whose weights are all 0 at first; `push` changes each by the same."""

    def __init__(self, runs: Path, task: Path, keep_models: bool = False, **settings: Any) -> None:
        constant = {
            "optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0, "weight_decay": 0},
            "batch": "worker",
            "lease": 600,
        }
        own = {"schedule": {"lr_scale": "none"}, "policy": "asp", "servers": 2, "data": {"strategy": "random"}}
        self.folder = trained_run(runs, task, **(constant | own | settings))
        if not keep_models:
            for file in self.folder.models.iterdir():
                file.unlink()
        config = self.folder.settings()
        self.cluster = Cluster(config, self.folder.path, Credentials(self.folder.read_secret()))
        addresses = self.cluster.addresses
        self.folder.write_facts(chief=addresses[0], servers=addresses, exit_code=None, finished=False)
        self.worker: Pusher | None = None
        self._has_ended = False

    def begin(self) -> "LiveRun":
        """A worker joins with weights of 0."""
        from paceline.tasks.task import load_task
        from paceline.worker.training.model_and_gradient import Replica

        config = self.folder.settings()
        worker = Pusher(self.cluster)
        replica = Replica(load_task(self.folder.task(config.task), config.model))
        worker.client = ParameterClient(worker.around, make_plan(replica.shapes, config.servers, config.plan))
        worker.model = np.zeros(replica.length, np.float32)
        self.cluster.evaluator_ready()
        self.worker = worker.join().sit()
        return self

    def push(self, value: float) -> None:
        """Each weight gets less by the value; the version grows by one."""
        worker = self.worker
        assert worker is not None
        worker.clock += 1
        update = Dense(np.full(len(worker.model), value, np.float32))
        worker.client.begin_push(worker.clock, worker.view, update, 1, lambda *_: worker.model, manner=AS_SET)()

    def end(self, exit_code: int | None = 0) -> RunFolder:
        """Ends the servers, which write snapshots, unless they have ended."""
        if not self._has_ended:
            self._has_ended = True
            self.cluster.close()
            self.folder.write_facts(exit_code=exit_code)
        return self.folder

"""Scores versions of the model on training, validation and test data, and writes the last and the best one down."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paceline.core.config import Config
from paceline.core.errors import DataError
from paceline.core.plan import make_plan
from paceline.core.policy import build_policy
from paceline.data.dataset import Labelled
from paceline.data.shards import Shards, take
from paceline.tasks.task import load_task
from paceline.v1 import run_service_pb2 as pb
from worker.chief import ChiefClient
from worker.client import ParameterClient
from worker.model_file import save_model
from worker.replica import Array, Replica

_CALIBRATION = 2000
"""Training examples that BatchNorm statistics are estimated on, and training accuracy is measured on (protocol 22)."""


class Scorer:
    """The evaluator: asks the chief what to score, pulls it, scores it, reports it."""

    def __init__(
        self, config: Config, shards: Shards, addresses: list[str], token: str, models: Path, device: str,
        stop: threading.Event, say: Callable[..., None],
    ) -> None:  # fmt: skip
        self._models, self._say = models, say
        models.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + config.deadline
        self._replica = Replica(load_task(config.task), device, config.seed)
        plan = make_plan(self._replica.shapes, config.servers, config.plan)
        self._chief = ChiefClient(addresses[0], token, config, "evaluator", deadline, stop, say)
        self._client = ParameterClient(addresses, token, plan, config, "evaluator", deadline, stop, say)
        self._rounds = build_policy(config.policy).rounds
        self._splits = self._open(shards, config.seed)
        self._best = float("-inf")

    def run(self) -> None:
        """Scores until the run is finished."""
        score: pb.Score | None = None
        while True:
            reply = self._chief.evaluate(score)
            score = None
            if reply.phase == "finished":
                return
            if reply.due:
                score = self._score(reply)

    def _score(self, due: pb.EvaluateReply) -> pb.Score:
        versions = self._pull(due.final)
        self._replica.refresh()
        self._replica.recalibrate(*self._splits["train"])
        metrics = {
            f"{split}_{name}": value
            for split, arrays in self._splits.items()
            for name, value in self._replica.score(*arrays).items()
        }
        self._keep(metrics, due)
        self._say("scored", epoch=due.epoch, final=due.final, versions=versions, **metrics)
        return pb.Score(epoch=due.epoch, seconds=due.seconds, versions=versions, metrics=metrics, final=due.final)

    def _pull(self, final: bool) -> list[int]:
        """One exact version of all slices in rounds; else each slice's newest, whose versions are reported."""
        target = self._replica.local
        if not self._rounds or final:
            return self._client.pull(target)
        versions = self._client.pull(target)
        for _ in range(3):
            if len(set(versions)) == 1:
                return versions
            versions = self._client.pull(target, max(versions) + 2)
        return versions

    def _keep(self, metrics: dict[str, float], due: pb.EvaluateReply) -> None:
        """Writes the model: always as the last one, and as the best one when its validation loss is the lowest yet."""
        facts = {"epoch": str(due.epoch), **{name: f"{value:.6g}" for name, value in metrics.items()}}
        value = metrics.get("validation_accuracy", -metrics.get("validation_loss", metrics["train_loss"]))
        if due.final:
            save_model(self._models / "last.safetensors", self._replica, facts)
        if value > self._best:
            self._best = value
            save_model(self._models / "best.safetensors", self._replica, facts)

    def _open(self, shards: Shards, seed: int) -> dict[str, tuple[Array, Array]]:
        """The data of each split; of the training data a fixed sample."""
        sizes = np.array(shards.manifest.sizes)
        count = min(_CALIBRATION, int(sizes.sum()))
        positions = np.sort(np.random.default_rng([seed, 11]).choice(int(sizes.sum()), count, replace=False))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        which = np.searchsorted(starts, positions, side="right") - 1
        everything = [shards.shard(index) for index in range(len(sizes))]
        found: dict[str, tuple[Array, Array]] = {"train": take(everything, which, positions - starts[which])}
        for name in ("validation", "test"):
            try:
                part = shards.part(name)
            except DataError:
                continue
            shards.verify(name)
            found[name] = (np.asarray(part.features), np.asarray(part.labels))
        return found

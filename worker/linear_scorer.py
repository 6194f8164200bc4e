"""The evaluator of a run with sparse updates: a linear model over sparse rows. Torch is not needed."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry

from paceline.core.config import Config
from paceline.core.plan import make_plan
from paceline.core.svm import Examples, score
from paceline.data.inputs import Inputs
from paceline.data.linear_model import Labels, save_liblinear, save_safetensors, shapes_of
from paceline.data.shards import Shards
from paceline.rpc.auth import Credentials
from paceline.tasks.task import load_task
from paceline.v1 import run_service_pb2 as pb
from worker.scoring import Scorer, Scores, majorities, open_splits, sizes_of
from worker.start import Start, Surroundings, run_process


class LinearScorer(Scorer):
    """Scores a linear model: loss (with the regulariser), accuracy, precision and recall of each split."""

    def __init__(
        self, config: Config, shards: Shards, addresses: list[str], credentials: Credentials, models: Path,
        stop: threading.Event, say: Callable[..., None], registry: CollectorRegistry,
    ) -> None:  # fmt: skip
        shapes = shapes_of(shards.manifest)
        plan = make_plan(shapes, config.servers, config.plan)
        weights = np.zeros(plan.total, np.float32)
        splits, best = open_splits(shards, config.seed), load_task(config.task, config.model).best
        super().__init__(
            config, addresses, credentials, plan, weights, models, best, sizes_of(splits), stop, say, registry
        )
        self._inputs = Inputs.of(shards.manifest)
        self._objective, self._labels = config.svm.objective, Labels.against_others(config.svm.positive)
        self._splits = {name: Examples.of(*arrays) for name, arrays in splits.items()}

    def baseline(self) -> dict[str, float]:
        labels = {split: examples.labels.astype(np.int64) for split, examples in self._splits.items()}
        return {"train_loss": self._measured(self._splits["train"])["loss"], **majorities(labels)}

    def measure(self, due: pb.EvaluateReply) -> tuple[Scores, dict[str, float]]:
        found = {split: self._measured(examples) for split, examples in self._splits.items()}
        if self._measure is not None:
            self._measure.check(found["train"], "BEST in the task's file")
        return found, {}

    def write(self, name: str, facts: dict[str, str]) -> None:
        """To NAME.safetensors and NAME.liblinear."""
        facts = {**facts, **self._inputs.facts}
        save_safetensors(self._models / f"{name}.safetensors", self._model, self._labels, facts)
        save_liblinear(self._models / f"{name}.liblinear", self._model, self._labels, self._objective.loss)

    def _measured(self, examples: Examples) -> dict[str, float]:
        found = score(examples, self._model, self._objective)
        return {
            "loss": found.total, "accuracy": found.accuracy, "precision": found.precision, "recall": found.recall,
        }  # fmt: skip


def evaluate(start: Start, models: Path) -> int:
    """Runs the evaluator; returns the exit code."""

    def scored(around: Surroundings) -> None:
        LinearScorer(
            start.config, around.shards, around.addresses, start.credentials, models,
            around.stop, around.say, around.registry,
        ).run()  # fmt: skip

    return run_process(start, scored)

"""The evaluator of a run with sparse updates: a linear model over sparse rows. Torch is not needed."""

from pathlib import Path

import numpy as np

from paceline.core.linear.model import Examples, score
from paceline.core.slice.plan import make_plan
from paceline.data.inputs import Inputs
from paceline.data.linear_model import LOSS, Labels, Parts, classes_of, save_liblinear, save_safetensors, shapes_of
from paceline.data.shards import Shards
from paceline.tasks.task import load_task
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.command_line import ToldEvaluator
from paceline.worker.scoring.scorer import Scorer, Scores, majorities, open_splits, sizes_of, split_weights
from paceline.worker.startup.run_process import run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings


class LinearScorer(Scorer):
    """Scores a linear model: loss (with the regulariser), accuracy, precision, recall and F1 of each split, and the share of
    its most frequent class, all by the rows' own weights."""

    def __init__(self, around: Surroundings, shards: Shards, models: Path) -> None:
        config = around.config
        shapes = shapes_of(shards.manifest, config.svm.intercept)
        plan = make_plan(shapes, config.servers, config.plan)
        weights = np.zeros(plan.total, np.float32)
        splits, best = open_splits(shards, config.seed), load_task(config.task, config.model).best
        super().__init__(around, plan, weights, models, best, sizes_of(splits))
        self._inputs = Inputs.of(shards.manifest)
        manifest = shards.manifest
        self._intercept = config.svm.intercept
        self._classes = classes_of(manifest)
        self._names = manifest.classes or ()
        self._objective = config.svm.objective.over(manifest.train_weight)
        self._labels = Labels.of(config.svm.positive, self._names)
        own = split_weights(shards, config.seed)
        self._splits = {
            name: Examples.of(*arrays, classes=self._classes, costs=own.get(name)) for name, arrays in splits.items()
        }

    def baseline(self) -> dict[str, float]:
        labels = {split: examples.labels.astype(np.int64) for split, examples in self._splits.items()}
        own = {split: examples.uneven for split, examples in self._splits.items()}
        return {"train_loss": self._measured(self._splits["train"])["loss"], **majorities(labels, own)}

    def measure(self, due: pb.EvaluateReply) -> tuple[Scores, dict[str, float]]:
        return {split: self._measured(examples) for split, examples in self._splits.items()}, {}

    def write(self, name: str, facts: dict[str, str]) -> None:
        """To NAME.safetensors and NAME.liblinear."""
        facts = {**facts, **self._inputs.facts, LOSS: self._objective.loss}
        parts, target = Parts.of(self._model, self._classes, self._intercept), self._models / name
        save_safetensors(target.with_suffix(".safetensors"), parts, self._labels, facts)
        save_liblinear(target.with_suffix(".liblinear"), parts, self._labels, self._objective.loss, self._names)

    def _measured(self, examples: Examples) -> dict[str, float]:
        return score(examples, self._model, self._objective, classes=self._classes, own=examples.uneven).named


def evaluate(start: Start[ToldEvaluator]) -> int:
    """Runs the evaluator; returns the exit code."""
    return run_process(start, lambda around, shards: LinearScorer(around, shards, start.told.models).run())

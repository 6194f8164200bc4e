"""Scores versions of the model on training, validation and test data, and has the last and the best one written down."""

import itertools
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Gauge
from safetensors import SafetensorError, safe_open

from paceline.base.private import make_private
from paceline.core.chief.best_model import Measure, chooses, default_measure, scores_of
from paceline.core.chief.phases import RunPhase
from paceline.core.errors import DiskError
from paceline.core.policies.policy import build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import Vector
from paceline.data.dataset import Array, Rows, is_class_label
from paceline.data.shards import Shards
from paceline.rpc.conversions import switch_value
from paceline.rpc.enums import phase_of
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.exchange.parameter_client import ParameterClient, pull_newest
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.scoring.sent_models import SentModels
from paceline.worker.surroundings import Surroundings

Splits = dict[str, tuple[Any, Array]]
"""Features and labels of each split."""
Scores = dict[str, dict[str, float]]
"""Loss and metrics of each split."""
Rank = tuple[float, float]
"""Where a version stands among others; more is better."""

_WORST: Rank = (float("-inf"), float("-inf"))
_CALIBRATION = 2000
"""Training examples that BatchNorm statistics are estimated on, and training accuracy is measured on."""
_MOST_METRICS, _LONGEST = 20, 60
"""Metrics of a task that Prometheus hears of, and letters of their names."""
_STRANGE = re.compile(r"[^\w+.-]", re.ASCII)


class ScoreMetrics:
    """The `paceline_eval_*` metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loss = Gauge("paceline_eval_loss", "Loss of the version scored last", ["split"], registry=registry)
        self._accuracy = Gauge(
            "paceline_eval_accuracy_ratio", "Accuracy of the version scored last", ["split"], registry=registry
        )
        self._metric = Gauge(
            "paceline_eval_metric",
            "What the task measures, of the version scored last",
            ["split", "metric"],
            registry=registry,
        )
        self._named: dict[str, str] = {}
        """Each metric's label."""
        self._epoch = Gauge("paceline_eval_epoch", "Epoch of the version scored last", registry=registry)
        self._seconds = Gauge("paceline_eval_score_seconds", "Time that the last scoring took", registry=registry)

    def note(self, epoch: int, seconds: float, scores: Mapping[str, Mapping[str, float]]) -> None:
        """A version was scored."""
        self._epoch.set(epoch)
        self._seconds.set(seconds)
        for split, values in scores.items():
            if "loss" in values:
                self._loss.labels(split).set(values["loss"])
            if "accuracy" in values:
                self._accuracy.labels(split).set(values["accuracy"])
            for name in values:
                if name != "loss" and (label := self._label(name)):
                    self._metric.labels(split, label).set(values[name])

    def _label(self, name: str) -> str:
        """A metric's name, of letters that labels may have, and no other's; '' for one too many."""
        if name not in self._named and len(self._named) < _MOST_METRICS:
            plain = _STRANGE.sub("_", name)[:_LONGEST] or "_"
            numbered = (f"{plain}_{number}" for number in itertools.count(2))
            taken = self._named.values()
            self._named[name] = next(label for label in itertools.chain([plain], numbered) if label not in taken)
        return self._named.get(name, "")


class Scorer(ABC):
    """The evaluator: asks the chief what to score, pulls it, scores it, reports it. Not thread-safe."""

    _is_worker = False
    """Whether it is a worker that scores."""

    def __init__(
        self,
        around: Surroundings,
        plan: SlicePlan,
        model: Vector,
        models: Path,
        best: Measure | None,
        examples: Mapping[str, int],
    ) -> None:
        """`model`: the flat vector that weights are pulled into; `models`: the folder that they are written to; `best`: the
        task's own measure; `examples`: how many of each split are scored."""
        config = around.config
        self._model = model
        self._models = models
        self._say = around.say
        self._metrics = ScoreMetrics(around.registry)
        make_private(models)
        self._chief = ChiefClient(around)
        self._client = ParameterClient(around, plan)
        self._client.pull_exactly()
        self._in_force = PolicyInForce(build_policy(config.policy))
        self._average_from = config.mean_from
        self._measure = best
        self._examples = dict(examples)
        self._best = _earlier_best(models / "best.safetensors", best)
        self._sent = SentModels(config.models_at, models, around) if config.models_at else None
        self._baseline: dict[str, float] | None = None

    @abstractmethod
    def baseline(self) -> dict[str, float]:
        """What scores are compared with, asked for before any weights are pulled: see EvaluateRequest."""

    @abstractmethod
    def measure(self, due: pb.EvaluateReply) -> tuple[Scores, dict[str, float]]:
        """Scores of the weights that have been pulled, and other values to report."""

    @abstractmethod
    def write(self, name: str, facts: dict[str, str]) -> None:
        """Writes the model that was scored to files of that name, with these facts."""

    def hasten(self) -> None:  # noqa: B027 - most have nothing to do
        """The final score is due: no worker trains any more, and all wait for it."""

    def note_score(self, is_better: bool, final: bool) -> None:  # noqa: B027 - most have nothing to do
        """A version was scored, and written where it is better than all before, or the final one."""

    def run(self) -> None:
        """Scores until the run is finished."""
        score: pb.Score | None = None
        while True:
            reply = self._ask(score)
            if phase_of(reply) == RunPhase.FINISHED or reply.elsewhere:
                return
            score = self._score(reply) if reply.due else None

    def _ask(self, score: pb.Score | None, midway: int = 0) -> pb.EvaluateReply:
        """What the chief wants next, after this score. `midway`: the epochs of a worker's script that have ended, which goes
        on; 0: no worker trains any more, or an evaluator asks."""
        reply = self._chief.evaluate(
            score, self._baseline or {}, is_worker=self._is_worker, midway=midway > 0, epoch=midway
        )
        switch = switch_value(reply.switch)
        if switch is not None:
            self._in_force.adopt(switch)
        return reply

    def _score(self, due: pb.EvaluateReply) -> pb.Score:
        start = time.monotonic()
        if due.final:
            self.hasten()
        if self._baseline is None:
            self._baseline = self.baseline()
        versions = self._pull()
        scores, more = self.measure(due)
        self._metrics.note(due.epoch, time.monotonic() - start, scores)
        metrics = {f"{split}_{name}": value for split, values in scores.items() for name, value in values.items()}
        metrics |= more
        measure = str(self._measure or default_measure(scores_of(metrics, chooses(metrics))))
        self._keep(metrics, measure, due, versions)
        examples, epoch, final = self._examples, due.epoch, due.final
        self._say("scored", epoch=epoch, final=final, versions=versions, measure=measure, examples=examples, **metrics)
        return pb.Score(
            epoch=epoch,
            seconds=due.seconds,
            versions=versions,
            metrics=metrics,
            final=final,
            measure=measure,
            examples=examples,
        )

    def _pull(self) -> list[int]:
        """Pulls one exact version of all slices in rounds, otherwise each slice's newest; returns the versions. If the run
        averages, pulls the mean of the versions up to it."""
        is_in_rounds, has_mean = bool(self._in_force.policy.rounds), self._average_from is not None
        return pull_newest(self._client, self._model, is_in_rounds, has_mean)

    def _keep(self, metrics: dict[str, float], measure: str, due: pb.EvaluateReply, versions: list[int]) -> None:
        """Has the model written: the final one as the last, and as the best one what is best on the validation data."""
        facts = {
            "epoch": str(due.epoch),
            "versions": json.dumps(versions),
            "model": "mean" if "local_models" in metrics else "global",
            "measure": measure,
        }
        facts |= {name: f"{value:.6g}" for name, value in metrics.items()}
        facts |= {f"{split}_examples": str(count) for split, count in self._examples.items()}
        if self._average_from is not None:
            facts["average_from"] = f"{self._average_from:g}"
        names = ["last"] if due.final else []
        if due.final:
            self.write("last", facts)
        rank = _rank(metrics, self._measure)
        is_better = rank > self._best
        if is_better:
            try:
                self.write("best", facts)
                self._best = rank
                names.append("best")
            except DiskError as error:  # a later one may find space
                self._say("can't keep the best model so far; scoring goes on", why=str(error))
                is_better = False
        if self._sent is not None:
            for name in names:
                self._sent.send(name, due.final)
        self.note_score(is_better, due.final)


def open_splits(shards: Shards, seed: int) -> Splits:
    """The data of each split; of the training data a fixed sample."""
    found: Splits = {"train": shards.rows(sample_rows(shards, seed))}
    for name in shards.manifest.parts:
        shards.verify(name)
        part = shards.part(name)
        found[name] = (part.features, part.labels)
    return found


def split_weights(shards: Shards, seed: int) -> dict[str, Array]:
    """The weights of the same examples, of those splits that have some."""
    found = {"train": shards.weights(sample_rows(shards, seed))}
    found |= {name: shards.part(name).weights for name in shards.manifest.parts}
    return {name: weights for name, weights in found.items() if weights is not None}


def sample_rows(shards: Shards, seed: int) -> Rows:
    """The training examples that are scored, as rising positions in the shards laid end to end: all, or some of those that
    count."""
    found = np.arange(sum(shards.manifest.sizes))
    weights = shards.weights(found) if len(found) > _CALIBRATION else None
    if weights is not None:
        found = found[weights > 0]
    rng = np.random.default_rng([seed, 11])
    return found[np.sort(rng.choice(len(found), min(_CALIBRATION, len(found)), replace=False))]


def sizes_of(splits: Splits) -> dict[str, int]:
    """How many examples each split has."""
    return {name: len(labels) for name, (_, labels) in splits.items()}


def majorities(labels: Mapping[str, Array], own: Mapping[str, Array | None] | None = None) -> dict[str, float]:
    """SPLIT_majority, the share of the largest class (ratio), and SPLIT_examples, of each split whose labels are classes.
    `own`: the examples' weights, where they have some."""
    found: dict[str, float] = {}
    for split, each in labels.items():
        if len(each) and is_class_label(each):
            _, which = np.unique(each, return_inverse=True)
            counts = np.bincount(which, (own or {}).get(split))
            found |= {f"{split}_majority": float(counts.max() / counts.sum()), f"{split}_examples": float(len(each))}
    return found


def _rank(metrics: Mapping[str, float], own: Measure | None) -> Rank:
    """The rank of a version: by the task's measure, or by accuracy if the task names none; then by the loss."""
    scores = scores_of(metrics, chooses(metrics))
    return (own or default_measure(scores)).rank(scores)


def _earlier_best(best: Path, own: Measure | None) -> Rank:
    """Where the best model on disk stands, from an earlier start of this run."""
    try:
        with safe_open(best, "numpy") as file:
            facts: dict[str, str] = file.metadata() or {}
    except (OSError, SafetensorError):
        return _WORST
    found = {}
    for name, value in facts.items():
        with suppress(ValueError):
            found[name] = float(value)
    return _rank(found, own)

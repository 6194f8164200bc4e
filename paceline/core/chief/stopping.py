"""When a run ends before its budget: its scores are reason enough, or the mean loss of a linear model's workers has settled."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from paceline.core.chief.best_model import Measure, chooses, measure_of, number, scores_of
from paceline.core.chief.scoring import Score
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config
from paceline.core.settings.stopping import StoppingConfig


def settled(stopping: StoppingConfig | None, scores: Sequence[Score], unit: str = "epoch") -> str:
    """Why the run may end, given its scores, oldest first; empty while it goes on. What was scored before the first whole
    epoch does not count. `unit`: what the run calls one."""
    told = [score for score in scores if score.epoch >= 1]
    if stopping is None or not told:
        return ""
    split = chooses(told[-1].metrics)
    measure = measure_of(told[-1].metrics, told[-1].measure)
    values = [scores_of(score.metrics, split).get(measure.name, math.nan) for score in told]
    why = {"window": _window, "delta": _delta, "target": _target}[stopping.rule](stopping, measure, values)
    return (
        f"early stopping after {unit} {told[-1].epoch}: {split.replace('_', ' ')} {measure.name} {why}" if why else ""
    )


def _window(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    """A score that is no number is not better."""
    best, waited = -math.inf, 0
    for value in values:
        worth, waited = measure.sign * value, waited + 1
        if worth > best + stopping.min_delta:
            best, waited = worth, 0
    if waited < stopping.patience:
        return ""
    by = f" by more than {stopping.min_delta:g}" if stopping.min_delta else ""
    was = f"better than {number(measure.sign * best)}{by}" if math.isfinite(best) else "a number"
    return f"was not {was} in {waited} score{'s' if waited > 1 else ''}"


def _delta(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    for before, after in pairwise(values[-2:]):
        if abs(after - before) < stopping.delta:
            return f"went from {number(before)} to {number(after)}, by less than {stopping.delta:g}"
    return ""


def _target(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    if stopping.target is None or not measure.sign * values[-1] >= measure.sign * stopping.target:
        return ""
    return f"is {number(values[-1])}, and {stopping.target:g} is asked for"


class CommonStopping:
    """Gathers the workers' losses on the examples that they hold out (svm.stop: all). Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.losses: list[float] = []
        """The mean over all members after each epoch."""
        self._told: dict[str, tuple[float, int]] = {}
        """Each worker's newest loss since the last mean, and the number of examples behind it."""
        self._epochs: dict[str, int] = {}
        """Each worker's newest epoch with a loss."""
        self._judged_from = 0
        """How many means there were when the run last got more epochs."""

    def looks_at(self, epoch: int) -> bool:
        """Whether a loss at the end of this epoch of a worker (from 0) counts."""
        return self._config.svm.stop == "all" and self._config.svm.judges(epoch, self._config.epochs)

    def add(self, worker: str, epoch: int, loss: float, examples: int) -> None:
        """A worker's loss at the end of an epoch that `looks_at` counts; a repeat changes nothing."""
        if epoch > self._epochs.get(worker, -1):
            self._epochs[worker] = epoch
            self._told[worker] = (loss, examples)

    def judge(self, members: Collection[str]) -> str:
        """Takes the mean once all members have reported a new loss. Returns why the run may stop; empty while it continues.
        ConfigError if a mean is not a number."""
        stopping = self._config.svm.stopping
        if not self._told or stopping is None or not members or not self._told.keys() >= set(members):
            return ""
        told = self._told.values()
        examples = sum(count for _, count in told)
        self.losses.append(sum(loss * count for loss, count in told) / max(1, examples))
        self._told = {}
        rule = stopping.build(build_optimizer(self._config.optimizer).lr)
        if not any(rule.add(each) for each in self.losses[self._judged_from :]):
            return ""
        return f"the validation loss has settled at {self.losses[-1]:.6g}"

    def judge_anew(self) -> None:
        """Only what comes from now on counts."""
        self._judged_from = len(self.losses)

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "losses": self.losses,
            "told": self._told,
            "validated": self._epochs,
            "means_judged_from": self._judged_from,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        self.losses = list(state["losses"])
        self._told = {worker: (loss, examples) for worker, (loss, examples) in state["told"].items()}
        self._epochs = dict(state["validated"])
        self._judged_from = int(state.get("means_judged_from", 0))

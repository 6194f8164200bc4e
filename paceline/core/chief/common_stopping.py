"""When a linear model's workers stop together: the mean of all members' losses, and whether it has settled."""

from collections.abc import Collection
from typing import Any

from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config


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

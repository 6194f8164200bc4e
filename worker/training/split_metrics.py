"""A split's metrics: the task gets all outputs of the split at once, so that they need not be means over mini-batches."""

from typing import Any

from torch import Tensor
from torch.utils import _pytree

from paceline.tasks import defaults
from paceline.tasks.task import Task
from paceline.worker.training.all_outputs import AllOutputs

_MEANS = (
    "metrics() gets all outputs of a split at once. Where its values are means over the examples, write METRICS_ARE_MEANS "
    "= True into the task file: it then gets one mini-batch after the other."
)


class Measuring:
    """Takes in a split's outputs mini-batch by mini-batch and gives the task's metrics of all. Not thread-safe."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._all = AllOutputs(f"task '{task.name}'", _MEANS)
        self._totals: dict[str, float] | None = None
        """Sums over the examples, of metrics that are means."""
        self._has_own = not defaults.is_default(task.metrics)
        self._weight = 0
        """Of the sums."""

    def add(self, outputs: Any, labels: Tensor) -> None:
        """Both may be on any device; the task gets them on the CPU. ConfigError where all outputs are too many to keep."""
        if self._task.metrics_are_means:
            outputs, labels = _pytree.tree_map_only(Tensor, lambda one: one.detach().cpu(), (outputs, labels))
            weight = len(labels) if self._has_own else defaults.counted(labels)
            if not weight:
                return
            self._weight += weight
            found = {name: float(value) * weight for name, value in self._task.metrics(outputs, labels).items()}
            before = found.keys() if self._totals is None else self._totals
            # a mean over some of the mini-batches is none
            self._totals = {
                name: value + (self._totals or {}).get(name, 0.0) for name, value in found.items() if name in before
            }
            return
        self._all.add(outputs, labels, len(labels))

    def metrics(self) -> dict[str, float]:
        """The task's metrics of all that was taken in. ConfigError where mini-batches don't fit together."""
        if self._task.metrics_are_means:
            return {name: total / self._weight for name, total in (self._totals or {}).items()}
        return {name: float(value) for name, value in self._task.metrics(*self._all.together()).items()}

"""A split's metrics: the task gets all outputs of the split at once, so that they need not be means over mini-batches."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from paceline.core.errors import ConfigError
from paceline.tasks import defaults
from paceline.tasks.checks import kind
from paceline.tasks.task import Task

MOST = 2 << 30
"""Bytes of outputs that are kept of one split; twice as much is needed while they are put together."""
_MEANS = (
    "metrics() gets all outputs of a split at once. Where its values are means over the examples, write METRICS_ARE_MEANS "
    "= True into the task file: it then gets one mini-batch after the other."
)


class AllOutputs:
    """Takes them in mini-batch by mini-batch. Not thread-safe."""

    def __init__(self, whose: str, means: str) -> None:
        """`whose`: outputs, in words; `means`: what to do where they are too many, or don't fit together."""
        self._whose = whose
        self._means = means
        self._outputs: list[Any] = []
        self._labels: list[Any] = []
        self._sizes: list[int] = []
        self._bytes = 0

    def __len__(self) -> int:
        """Mini-batches."""
        return len(self._sizes)

    def add(self, outputs: Any, labels: Any, examples: int) -> None:
        """Both may be on any device, and are tensors or tuples, lists, dicts of such. ConfigError: all are too many to keep."""
        outputs, labels = _pytree.tree_map_only(Tensor, lambda one: one.detach().cpu(), (outputs, labels))
        self._outputs.append(outputs)
        self._labels.append(labels)
        self._sizes.append(examples)
        self._bytes += sum(one.nbytes for one in _pytree.tree_leaves(outputs) if isinstance(one, Tensor))
        if self._bytes > MOST:
            raise ConfigError(
                f"The outputs of {self._whose} for {sum(self._sizes):,} examples take {self._bytes / 2**30:.1f} GiB, but "
                f"Paceline keeps at most {MOST / 2**30:g} GiB of a split. {self._means}"
            )

    def together(self) -> tuple[Any, Any]:
        """Outputs and labels, each in the form of a mini-batch's. ConfigError where those don't fit together."""
        return self._joined(self._outputs), self._joined(self._labels)

    def _joined(self, parts: Sequence[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        flat = [_pytree.tree_flatten(part) for part in parts]
        columns = list(zip(*(leaves for leaves, _ in flat), strict=False))
        if any(form != flat[0][1] for _, form in flat) or not all(_fit(column, self._sizes) for column in columns):
            raise ConfigError(
                f"The outputs or labels of {self._whose} can't be put together: mini-batches of {self._sizes[0]} and "
                f"{self._sizes[-1]} examples have {kind(parts[0])} and {kind(parts[-1])}. {self._means}"
            )
        joined = [torch.cat(list(column)) if isinstance(column[0], Tensor) else column[0] for column in columns]
        return _pytree.tree_unflatten(joined, flat[0][1])


def _fit(column: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Whether these leaves, one of each mini-batch, can be joined: tensors with the same number of rows for each example,
    or one and the same value."""
    if not isinstance(column[0], Tensor):
        return all(leaf is column[0] or bool(leaf == column[0]) for leaf in column)
    per_example = len(column[0]) / sizes[0] if column[0].ndim else 0
    return bool(per_example) and all(
        isinstance(leaf, Tensor) and leaf.shape[1:] == column[0].shape[1:] and len(leaf) == per_example * size
        for leaf, size in zip(column, sizes, strict=True)
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

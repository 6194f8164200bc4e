"""What a model of torch says about the examples of a file, prepared by its task as in scoring."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError, UsageError
from paceline.data.examples_to_predict import NewExamples, read_new
from paceline.results.model.predict import Report, Wanted, csv_lines, digits
from paceline.results.model.run_model import Trained

if TYPE_CHECKING:
    from paceline.data.inputs import Inputs
    from paceline.tasks.task import Task

Rows = npt.NDArray[Any]


def apply_module(trained: Trained, which: str, path: Path, file: str, wanted: Wanted, device: str) -> Report:
    """Classes where the labels of training were classes, by the task's probabilities() or the largest output; otherwise the
    outputs themselves. UsageError: probabilities of numbers; others as for `predict`."""
    from paceline.worker.training.model_and_gradient import Replica

    inputs, task = trained.inputs(which), trained.task
    examples = read_new(file, inputs, task.data)
    replica = Replica(task, device, model=trained.module(which))
    labels = examples.labels
    if labels is None:
        labels = np.zeros((len(examples), *inputs.label_shape), inputs.label_dtype)
    found = [rows_of(outputs, task, inputs) for outputs, _ in replica.outputs(examples.features, labels)]
    rows, is_classes = np.concatenate([part for part, _ in found]), found[0][1]
    if wanted.probabilities and not is_classes:
        raise UsageError(
            f"--proba: the model gives {rows[0].size} number(s) an example, not probabilities of classes. If it "
            "is a classifier, add probabilities(outputs) to the task file; it must return an array (examples, "
            "classes)."
        )
    score = {} if examples.labels is None else _score(replica, examples)
    lines, counts = _classes(rows, inputs, wanted) if is_classes else (_numbers(rows), {})
    alone = inputs.has_classes and not is_classes
    note = (
        "the model gives one number an example, which is written as it is; a task file says by probabilities(outputs) what "
        "it means for classes"
    )
    notes = (*examples.as_read, *([note] if alone else []))
    return Report(str(path), inputs.size, len(examples), lines, counts, score, examples.unscored, notes)


def rows_of(outputs: Any, task: "Task", inputs: "Inputs") -> tuple[Rows, bool]:
    """Of each example the probabilities of the classes, and True; or the numbers that the model gives, and False."""
    import torch

    if inputs.has_classes and task.probabilities is not None:
        return task.probabilities(outputs).cpu().numpy(), True
    if not isinstance(outputs, torch.Tensor):
        raise ConfigError(
            f"The model of task '{task.name}' gives {type(outputs).__name__}, and Paceline can't know what it "
            "predicts. Add probabilities(outputs) to the task file; it must return an array (examples, classes)."
        )
    if inputs.has_classes and outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs.float().softmax(1).cpu().numpy(), True
    return outputs.reshape(len(outputs), -1).cpu().numpy(), False


def _score(replica: Any, examples: NewExamples) -> dict[str, float]:
    """The task's metrics, its loss last."""
    found: dict[str, float] = replica.score(examples.features, examples.labels)
    return {name: value for name, value in found.items() if name != "loss"} | {"loss": found["loss"]}


def _classes(rows: Rows, inputs: "Inputs", wanted: Wanted) -> tuple[list[str], dict[str, int]]:
    """The lines, and how often each class occurs."""
    names = names_of(inputs, rows.shape[1])
    labels = [names[place] for place in rows.argmax(1).tolist()]
    counts = dict(sorted(Counter(labels).items(), key=lambda one: names.index(one[0])))
    if not wanted.probabilities:
        return labels, counts
    each = ([label, *map(digits, row)] for label, row in zip(labels, rows.tolist(), strict=True))
    return csv_lines([("label", *names[: rows.shape[1]]), *each]), counts


def names_of(inputs: "Inputs", count: int) -> list[str]:
    """What the classes are called, those without a name by their numbers."""
    known: Sequence[str] = inputs.classes or ()
    return [*known, *(str(number) for number in range(len(known), count))]


def _numbers(rows: Rows) -> list[str]:
    return [",".join(map(digits, row)) for row in rows.tolist()]

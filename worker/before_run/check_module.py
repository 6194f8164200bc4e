"""One mini-batch of a task of torch through all that a run needs: data, model, loss, metrics, device, the wire's form."""

import warnings
from collections.abc import Sequence

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.optimizers.groups import grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.data.dataset import Array, is_class_label
from paceline.data.shards import Shard, Shards, stacked, take
from paceline.rpc.transport import encoded_parts, wide_enough
from paceline.tasks.default_loss import refuse_flags
from paceline.tasks.defaults import is_default
from paceline.tasks.task import load_task
from paceline.worker.membership.member import check_batch
from paceline.worker.module_worker import epoch_lens
from paceline.worker.training.device import check_compiler
from paceline.worker.training.explain_task_errors import explained
from paceline.worker.training.model_and_gradient import Replica

MOST = 8
"""Most examples of a mini-batch to compute: a deep network takes 0.05 s or more for each on a core."""
TRIES = 3
"""Number of mini-batches of which at least one must have a finite loss."""
ENOUGH = (4, 128, 2048)
"""Examples of each part of the data that metrics get: more where they can't do with a few."""
_LABELS = 1 << 17
"""Labels of a part of the data that are looked at for classes."""
Batch = tuple[Array, Array]


def check(config: Config, shards: Shards, device: str = "auto") -> None:
    """Raises ConfigError or DataError if a worker or the evaluator could not work."""
    check_batch(config, max(epoch_lens(config, shards.manifest)))
    task = load_task(config.task, config.model)
    replica = Replica(task, device, config.seed, precision=config.precision, accumulate=config.accumulate)
    grouped(build_optimizer(config.optimizer), Layout.whole(replica.shapes))
    if config.compile:
        check_compiler()
    every = [shards.shard(number) for number in range(len(shards))]
    some = batches(every, config.worker_batch)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "error", message="Using a target size"
        )  # a loss over (N, 1) and (N,) means something else
        check_wire(config, replica, gradient_of(replica, some))
        if is_default(task.loss):
            refuse_flags(*next(replica.outputs(*some[0])))
        check_metrics(replica, [every, *([shards.part(name)] for name in shards.manifest.parts)])
    replica.check_state()


def gradient_of(replica: Replica, some: Sequence[Batch]) -> Vector:
    """The first finite gradient; ConfigError if no mini-batch has one, or none reaches the model."""
    for number, (features, labels) in enumerate(some):
        step = replica.gradient(features, labels, number, np.random.default_rng(number))
        if step.finite or (replica.is_scaled and np.isfinite(step.loss)):
            if not step.gradient.any():
                replica.check_reach(features, labels)
            if len(labels) == 1 and not number:  # the other end of the labels is in the next one
                continue
            return np.nan_to_num(step.gradient)
    features, (low, high) = some[0][0], (float(some[0][0].min()), float(some[0][0].max()))
    raise ConfigError(
        f"The {'gradient' if np.isfinite(step.loss) else 'loss'} of task '{replica.task.name}' is not finite even "
        f"for the first weights (loss {step.loss:g}), so the model can't learn. The raw features range from "
        f"{low:g} to {high:g}. Scale them to about -1 to 1 in prepare(), and look for log(0), a division by 0 or "
        "a root of 0 in loss()."
    )


def check_wire(config: Config, replica: Replica, gradient: Vector) -> None:
    """Raises ConfigError if the codecs turn the gradient or weights into values that are not finite."""
    plan = make_plan(replica.shapes, config.servers or 1, config.plan)  # without servers a model travels whole
    push = config.codec.push_codec_in(0)
    for key, codec, vector in (("push", push, gradient), ("pull", config.codec.pull_codec, replica.local)):
        for index, pieces in enumerate(plan.split(vector)) if not codec.lossless else ():
            if not pieces:  # more servers than the model has elements for
                continue
            values = np.concatenate(pieces)
            fitted = codec.fitted(plan.runs(index))
            first, data = next(encoded_parts(values, fitted, config.part_bytes), (0, None))
            cut = next(fitted.cuts(len(values), config.part_bytes), None)
            if cut is None or data is None:
                continue
            found = np.empty(cut.stop - first, np.float32)
            cut.codec.decode(data, found)
            if not np.isfinite(found).all():
                what = "gradient" if key == "push" else "weights"
                raise ConfigError(
                    f"codec.{key} is {codec.name}, and the first {what} has values (up to "
                    f"{np.abs(values).max():g}) that become infinite in it. Set codec.{key} to "
                    f"{wide_enough(values)}, or make the loss smaller."
                )


def check_metrics(replica: Replica, parts: Sequence[Sequence[Shard]]) -> None:
    """The loss and metrics of a few examples of each part; of many, as in a run, where few are not enough for the metrics."""
    for count in ENOUGH:
        some = [take(part, *telling(part, count)) for part in parts]
        features, labels = stacked([each for each, _ in some]), np.concatenate([each for _, each in some])
        try:
            replica.score(features, labels)
            return
        except ConfigError as error:
            failed = explained(error, replica.task, features, labels)
            if not str(failed).startswith("metrics()"):
                break
    raise failed from None


def batches(part: Sequence[Shard], batch: int) -> list[Batch]:
    """A few mini-batches, the smallest and largest label among their examples."""
    size = min(batch, MOST)
    which, rows = telling(part, TRIES * size)
    cuts = range(0, max(1, len(rows) - size + 1), size)
    return [take(part, which[start : start + size], rows[start : start + size]) for start in cuts]


def telling(part: Sequence[Shard], count: int) -> tuple[Array, Array]:
    """Shards and rows of about `count` examples: one of each class (if the labels are classes), then the first ones."""
    wanted: list[tuple[int, int]] = []
    if is_class_label(part[0].labels):
        first: dict[int, tuple[int, int]] = {}
        for number, shard in enumerate(part):
            for row in {int(np.argmin(shard.labels)), int(np.argmax(shard.labels))} if len(shard) else ():
                first.setdefault(int(shard.labels[row]), (number, row))
            for label, row in zip(*np.unique(shard.labels[:_LABELS], return_index=True), strict=True):
                first.setdefault(int(label), (number, int(row)))
        lowest_and_highest = sorted(first)[:1] + sorted(first)[:0:-1]
        wanted = [first[label] for label in lowest_and_highest][: max(2, count // 2)]
    for number, shard in enumerate(part):
        wanted += [(number, row) for row in range(min(count, len(shard)))]
    found = np.array(list(dict.fromkeys(wanted))[:count], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]

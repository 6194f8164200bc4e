"""A few mini-batches of a linear model over sparse rows through all that a run needs: labels, settings, steps, the wire's form,
scores. No torch is loaded."""

import numpy as np

from paceline.core.errors import BadPush, ConfigError, DataError
from paceline.core.linear.model import Examples, Fit, score
from paceline.core.linear.one_vs_rest import linear_model
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import push_batches
from paceline.core.settings.config import Config
from paceline.core.values import Sparse, Vector
from paceline.data.linear_labels import check_labels
from paceline.data.linear_model import shapes_of
from paceline.data.shards import Shards
from paceline.rpc.transport import decoded, encoded, wide_enough
from paceline.worker.linear.linear_rows import LinearData
from paceline.worker.linear.linear_worker import diverged
from paceline.worker.membership.member import check_batch

ROWS = 2048
"""Of the first shard, and of each part, at most."""
STEPS = 3
"""Pushes."""


def check_linear(config: Config, shards: Shards) -> None:
    """Raises ConfigError or DataError if a worker or the evaluator could not work, or nothing could be learned."""
    manifest, task = shards.manifest, config.task
    parts = {name: shards.part(name) for name in manifest.parts}
    train = [shards.shard(number) for number in range(len(shards))]
    check_labels(
        [shard.labels for shard in train],
        {name: part.labels for name, part in parts.items()},
        manifest.classes or (),
        task,
    )
    (_, (width,)), *_ = shapes_of(manifest, config.svm.intercept)
    if not any(shard.features.nnz for shard in train):
        raise DataError(
            f"No training example of task '{task}' has a feature: every row is empty. Check what data() reads."
        )
    data = LinearData(config, shards)
    check_batch(config, max(data.epoch_lens()))
    seats = 1 if config.data.access == "all" else config.workers
    for place in range(seats):
        data.check_weights(range(place, len(shards), seats))
    weights = _stepped(config, data, width)
    for part in parts.values():
        examples = Examples.of(part.features[:ROWS], part.labels[:ROWS], classes=data.classes)
        score(examples, weights, data.objective, classes=data.classes)


def _stepped(config: Config, data: LinearData, width: int) -> Vector:
    """The weights after a few pushes; ConfigError if they can't be sent."""
    examples, _, rows, _ = data.rows([0], ROWS)
    weights = np.zeros(width, np.float32)
    fit = Fit.of(examples, config.svm.intercept) if config.svm.steps == "fitted" else None
    decays = config.svm.objective.decays(data.counts)
    model = linear_model(weights, data.classes, data.objective, decays, tracks=True, fit=fit)
    size = config.worker_batch * push_batches(config)
    optimizer = build_optimizer(config.optimizer)
    slots = optimizer.new_slots(width) if optimizer.sparse else []
    for number, start in enumerate(range(0, min(len(rows), STEPS * size), size), start=1):
        batch = rows[start : start + size]
        if optimizer.sparse:
            moved = model.gradient(examples, batch)
            optimizer.step_at(weights, moved, 1.0, slots, number)
        else:
            model.step(examples, batch, config.worker_batch, optimizer.lr)
            moved = model.moves()
        if not np.isfinite(moved.values).all():
            raise diverged()
        _check_wire(config, moved)
    return weights


def _check_wire(config: Config, moved: Sparse) -> None:
    """Raises ConfigError if the codec turns a push into values that are not finite."""
    codec = config.codec.push_codec
    try:
        decoded(encoded(moved.values, codec), codec, len(moved.values), "the check")
    except BadPush as error:
        raise ConfigError(
            f"codec.push is {codec.name}, and a first push has values (up to {np.abs(moved.values).max():g}) that "
            f"become infinite in it. Set codec.push to {wide_enough(moved.values)}, or lower optimizer.lr."
        ) from error

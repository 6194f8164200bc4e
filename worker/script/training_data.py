"""A user's own data set as a run trains on it: shards whose examples are row numbers, dealt alike in every process."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.dataset import Array, Labelled, PartName, Rows, Selection
from paceline.data.manifest import FileEntry, FileName, Manifest, Recipe, ShardEntry
from paceline.data.sampler import lens_of_epoch, proportions, steps_per_epoch
from paceline.data.shards import Shard, Shards
from paceline.worker.module_worker import epoch_lens
from paceline.worker.script.draws import SampledRows
from paceline.worker.script.labels import (
    Say,
    given_labels,
    labels_at_hand,
    read_features,
    read_labels,
    some_lists,
)

Deal = Callable[[Config, Selection], Sequence[Rows]]
"""Who gets what: the rows of each shard that the settings ask for."""
_NUMBERS: tuple[FileName, ...] = ("features", "labels", "ids")


class Teller(Protocol):
    """What a data set asks of the script's run."""

    accumulate: int
    """Mini-batches of the script for each step."""

    def say(self, event: str, **facts: Any) -> None:
        """To the worker's log."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a script's loader draws mini-batches."""

    batch_size: int
    """Examples of all workers together."""
    shuffle: bool = True
    drop_last: bool = False
    """Whether all mini-batches have the same size, and what is left over in an epoch is left out."""
    fills: bool = False
    """Whether torch's BatchSampler cuts them."""


class TrainingData(Shards):
    """Shards of a data set that stays where it is: features, labels and ids of an example are its row's number. Each epoch
    takes every row once over all workers, but for what `drop_last` leaves out and what a strategy gives to several."""

    def __init__(self, rows: Sequence[Rows], manifest: Manifest, asked: Cut, is_common: bool = True) -> None:
        """`rows`: of each shard; `is_common`: any worker can read any of them at any time."""
        super().__init__(Path(), manifest)
        self.is_common = is_common
        self._rows = rows
        self.shuffle = asked.shuffle
        self.fills = asked.fills

    def shard(self, number: int) -> Shard:
        rows = self._rows[number]
        return Shard(rows, rows, rows)

    def ids(self, number: int) -> Rows:
        return self._rows[number]

    def verify(self, which: int | PartName) -> None:
        """Nothing to do: the rows are in memory."""


class Brought:
    """What a script's loader or sampler brings to the run; dealt once the run's settings are known. Not thread-safe."""

    def __init__(
        self,
        run: Teller,
        dataset: Any,
        deal: Deal,
        asked: Callable[[], Cut],
        *,
        labels: Any = None,
        length: int | None = None,
        sampled: SampledRows | None = None,
    ) -> None:
        """`asked`: how mini-batches are drawn, known when the run is joined; `labels`: one for each row, to deal by; `length`:
        examples of an epoch of a stream; `sampled`: a sampler's draws, dealt in place of the rows. ConfigError where it is no
        data set."""
        check_dataset(dataset)
        self._run = run
        self.dataset = dataset
        self.is_stream = is_stream(dataset)
        self.asked = asked
        self._deal = deal
        self._sampled = sampled
        self._length = length_of(dataset if sampled is None else sampled, length, self.is_stream)
        self._labels = None if labels is None else given_labels(labels, len(self if sampled is None else dataset))
        self._dealt: tuple[Config, TrainingData] | None = None

    def __len__(self) -> int:
        """Examples of an epoch, all workers together."""
        return self._length

    @property
    def asks(self) -> dict[str, Any]:
        """What the run's settings must say for it, below file and flags; batch_size is that of each mini-batch that the script
        gets. ConfigError where the script has not said it yet."""
        asked = self.asked()
        found: dict[str, Any] = {"batch_size": asked.batch_size}
        return found | {"budget": "per_worker"} if asked.fills else found

    def dealt(self, config: Config) -> TrainingData:
        """The shards of a run with these settings; the same in all processes. ConfigError and DataError where the data set
        can't be dealt like that."""
        if self._dealt is None or self._dealt[0] != config:
            self._dealt = config, self._made(config, self.asked())
        return self._dealt[1]

    def rows(self, dealt: Rows, epoch: int) -> Rows:
        """The rows of the data set that these dealt ones are in that epoch, from 0: the same, or a sampler's draws."""
        return dealt if self._sampled is None else self._sampled.of(epoch)[dealt]

    def _made(self, config: Config, asked: Cut) -> TrainingData:
        parts = self._run.accumulate
        if self._sampled is not None:
            self._sampled.seed = config.seed
        _check(config, asked, parts, self.is_stream, self._sampled)
        examples: list[Rows] = list(self._rows(config, asked))
        if not asked.shuffle:
            examples = [np.sort(rows) for rows in examples]
        lens, twice, count = lens_of_epoch(examples, config.data.weights)
        if asked.drop_last:
            lens = _whole_batches(lens, config)
        manifest = Manifest(
            source=type(self.dataset).__name__,
            recipe=Recipe(
                task="script",
                strategy=config.data.strategy,
                shards=len(examples),
                weights=config.data.weights,
                validation=0.0,
                test=0.0,
                seed=config.seed,
                examples=self._identity(),
            ),
            train_examples=sum(lens) if asked.drop_last else count,
            duplicates=tuple(twice.tolist()),
            shards=tuple(_entry(rows, length, twice) for rows, length in zip(examples, lens, strict=True)),
            parts={},
        )
        if parts > 1:
            _check_parts(config, manifest, parts)
        is_common = not (self.is_stream or self._sampled is not None or asked.fills)
        return TrainingData(examples, manifest, asked, is_common)

    def _rows(self, config: Config, asked: Cut) -> Sequence[Rows]:
        """The rows of each shard."""
        count = len(self)
        shards = config.data.shards or config.workers
        _check_enough(count, shards)
        in_turn = (
            self.is_stream or self._sampled is not None or (not asked.shuffle and config.data.strategy.name == "random")
        )
        if in_turn and not config.data.weights:
            return [np.arange(shard, count, shards, dtype=np.int64) for shard in range(shards)]
        source = cast(Labelled, _AsNeeded(self.dataset, self._labels, config.seed, self._run.say))
        return self._deal(config, Selection(source, np.arange(count, dtype=np.int64)))

    def _identity(self) -> str:
        """SHA-256 of what can be said of the data set without reading it."""
        total = hashlib.sha256()
        for part in _marks(self.dataset, len(self)):
            total.update(part)
        if self._sampled is not None:
            total.update(self._sampled.mark)
        if self._labels is not None:
            total.update(np.ascontiguousarray(self._labels).data)
        return total.hexdigest()


class _AsNeeded:
    """A data set used like a `Labelled`, whose labels and features are found when a strategy looks at them."""

    weights = None

    def __init__(self, dataset: Any, labels: Array | None, seed: int, say: Say) -> None:
        self._dataset = dataset
        self._given = labels
        self._seed = seed
        self._say = say

    def __len__(self) -> int:
        return len(self._dataset)

    @cached_property
    def labels(self) -> Array:
        """(N, ...)."""
        found = labels_at_hand(self._dataset) if self._given is None else self._given
        return read_labels(self._dataset, self._seed, self._say) if found is None else found

    @property
    def features(self) -> Any:
        """(N, values in a row)."""
        return self._read.features

    def release(self) -> None:
        """As `Labelled.release`."""
        self._read.release()

    @cached_property
    def _read(self) -> Labelled:
        return read_features(self._dataset, self._seed, self._say)


def shape_of(config: Config, manifest: Manifest) -> tuple[list[int], int]:
    """Examples that one epoch takes at each place, and its steps."""
    lens = epoch_lens(config, manifest)
    return lens, steps_per_epoch(lens, [[place] for place in range(len(lens))], config.worker_batch)


# what is a data set
def is_stream(dataset: Any) -> bool:
    """Whether its examples come one after the other, and none by number."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def check_dataset(dataset: Any) -> None:
    """ConfigError where it is none, with what to do."""
    kind, advice = type(dataset).__name__, ""
    if isinstance(dataset, (tuple, list)) and len(dataset) == 2 and all(hasattr(one, "shape") for one in dataset):
        kind, advice = f"{kind} of two arrays", "give torch.utils.data.TensorDataset(features, labels)"
    elif isinstance(dataset, dict):
        advice = "give the set to train on, like sets['train'], or for columns a class with __len__ and __getitem__"
    elif hasattr(dataset, "iloc"):
        advice = "give torch.utils.data.TensorDataset of tensors made of its columns"
    elif hasattr(dataset, "__next__"):
        advice = "it can be read only once: give an object whose __iter__ starts again, like an IterableDataset"
    elif isinstance(dataset, (str, bytes, int, float, type)) or not (
        hasattr(dataset, "__iter__") or (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))
    ):
        advice = "give an object with __len__ and __getitem__, or an IterableDataset"
    if advice:
        raise ConfigError(f"The data set is a {kind}, not a torch data set: {advice}.")


def length_of(dataset: Any, length: int | None, stream: bool) -> int:
    """Examples of an epoch. ConfigError where there are none, or where nobody knows how many."""
    if length is not None and not stream:
        raise ConfigError(
            f"length={length} is for streams, but a {type(dataset).__name__} has rows by number. Leave it out. To "
            "train on fewer rows, give torch.utils.data.Subset(dataset, range(...))."
        )
    if length is None:
        try:
            length = len(dataset)
        except TypeError:
            raise ConfigError(
                f"The length of an epoch is unknown, because {type(dataset).__name__} is a stream without len(). "
                "Give the number of examples of all workers together, length=...; or count steps instead of "
                "epochs: for step in paceline.steps(n)."
            ) from None
    if length < 1:
        raise ConfigError(f"The data set, a {type(dataset).__name__}, has {length} examples; expected 1 or more.")
    return length


def _marks(dataset: Any, count: int) -> Iterator[bytes]:
    """What tells two data sets apart: class, length, the rows of a Subset, labels where they are at hand."""
    yield f"{type(dataset).__qualname__} {count}".encode()
    if isinstance(dataset, Subset):
        yield np.asarray(dataset.indices, np.int64).tobytes()
        yield from _marks(dataset.dataset, len(cast(Any, dataset.dataset)))
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _marks(part, len(cast(Any, part)))
    elif not is_stream(dataset):
        labels = labels_at_hand(dataset)
        yield from some_lists(dataset) if labels is None else (np.ascontiguousarray(labels).tobytes(),)


# what is dealt
def _check(config: Config, asked: Cut, parts: int, stream: bool, sampled: SampledRows | None) -> None:
    """ConfigError where the settings and what the script asks for don't go together."""
    name = config.data.strategy.name
    what = "the data set is a stream" if stream else "" if sampled is None else f"a {sampled.kind} draws the rows"
    if what and name not in ("random", "round_robin"):
        todo = "or give a data set with rows and len()" if stream else "or the sampler"
        raise ConfigError(
            f"data.strategy is {name}, but {what}, of which each of n workers takes every n-th. Leave it out, {todo}."
        )
    for key, is_set in (("weights", config.data.weights), ("shards", config.data.shards not in (None, config.workers))):
        if stream and is_set:
            raise ConfigError(
                f"data.{key} is set, but Paceline deals a stream evenly, one example after the other. Leave it out."
            )
    if config.data.access == "all":
        why = what or ("" if asked.shuffle else "shuffle=False has an order")
        why = "drop_last=True makes mini-batches of one size" if asked.drop_last and not why else why
        if why:
            raise ConfigError(
                f"data.access is all (every worker draws from the whole set), but {why}. Leave out data.access."
            )
    if asked.fills and config.budget == "total":
        raise ConfigError(
            "budget is total (a fast worker takes over the steps of slow ones), but your own DataLoader with a "
            "paceline.sampler ends after one pass. Leave out budget, or use paceline.loader."
        )
    each = asked.batch_size * parts // config.workers
    if asked.fills and config.worker_batch != each:
        raise ConfigError(
            f"The DataLoader of paceline.sampler makes {each} examples a step, but the run's "
            f"settings (batch_size {config.batch_size}, batch {config.batch}) ask for {config.worker_batch} for "
            "each worker. Leave batch_size and batch out of the settings, or use paceline.loader, which follows "
            "them."
        )


def _check_parts(config: Config, manifest: Manifest, parts: int) -> None:
    """Raises ConfigError if a worker's smallest mini-batch can't be cut into `parts` parts."""
    lens, steps = shape_of(config, manifest)
    least = min(lens) // steps
    if least < parts:
        raise ConfigError(
            f"accumulate is {parts}, but some steps of a worker have fewer examples ({least}). Use a smaller "
            "accumulate, a larger batch_size, or fewer workers."
        )


def _check_enough(count: int, shards: int) -> None:
    if count < shards:
        raise ConfigError(
            f"The data set has {count} examples, too few for {shards} shards. Use fewer workers, or give more data."
        )


def _whole_batches(lens: Sequence[int], config: Config) -> list[int]:
    """Examples that an epoch takes from each shard so that all mini-batches of a worker have one size: the worker's batch, or
    with shards of several sizes less in proportion. ConfigError where a worker has too few for that."""
    owned = [sum(lens[place :: config.workers]) for place in range(config.workers)]
    most, least = max(owned), min(owned)
    steps = (most if config.data.weights else least) // config.worker_batch
    if not steps or least < steps:
        raise ConfigError(
            f"drop_last leaves no mini-batch: a worker has {least:,} examples, but its mini-batches need "
            f"{config.worker_batch:,}. Use fewer workers, a smaller batch_size, or drop_last=False."
        )
    found = list(lens)
    for place, total in enumerate(owned):
        kept = steps * min(config.worker_batch, total // steps)
        found[place :: config.workers] = proportions(kept, lens[place :: config.workers])
    return [max(1, length) for length in found]


def _entry(rows: Rows, length: int, twice: Rows) -> ShardEntry:
    """What the manifest says of a shard."""
    digest = hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
    file = FileEntry(bytes=rows.nbytes, dtype=rows.dtype.str, shape=rows.shape, sha256=digest)
    return ShardEntry(
        examples=len(rows),
        epoch_len=length,
        duplicates=int(np.isin(rows, twice).sum()) if len(twice) else 0,
        classes={},
        files=dict.fromkeys(_NUMBERS, file),
    )

"""The mini-batches that a script draws with `paceline.loader`."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    default_collate,
)

from paceline.core.errors import ConfigError
from paceline.worker.script.course import Course, Part, Run
from paceline.worker.script.draws import SampledRows
from paceline.worker.script.guard import check_guard
from paceline.worker.script.streams import StreamPart
from paceline.worker.script.training_data import Brought, Cut, Deal, check_dataset, is_stream, length_of, shape_of

_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
)
"""What a DataLoader of the user's hands on."""


def loader(
    run: Run | None,
    deal: Deal,
    dataset: Any,
    batch_size: int | None = None,
    *,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
    labels: Any = None,
    length: int | None = None,
    deals_itself: bool = False,
    **options: Any,
) -> "DataLoader[Any]":
    """A DataLoader of this worker's part, which begins at the worker's clock and ends with the run; `run` None: of the whole
    set. `deal`: who gets what; the rest: see paceline/api/script.py. ConfigError where the arguments are none."""
    sampler = options.pop("sampler", None)
    if isinstance(dataset, DataLoader):
        theirs = options_of(dataset)
        dataset = theirs.pop("dataset")
        batch_size = theirs.pop("batch_size") if batch_size is None else batch_size
        drop_last = theirs.pop("drop_last") if drop_last is None else drop_last
        sampler = theirs.pop("sampler") if sampler is None else sampler
        options = fitting({key: theirs[key] for key in theirs if key in _OPTIONS} | options)
    options = _checked(options)
    check_dataset(dataset)
    if sampler is not None:
        dataset, shuffle, sampler = _drawn(dataset, shuffle, sampler)
    asked = Cut(checked_batch_size(batch_size), shuffle is not False, bool(drop_last))
    if deals_itself and not is_stream(dataset):
        raise ConfigError(
            "deals_itself=True is for streams (IterableDataset). Leave it out: Paceline deals rows by number."
        )
    if run is None:
        in_order = is_stream(dataset) or not (length_of(dataset, length, False) and asked.shuffle)
        kind = DataLoader if length is None else partial(LongLoader, length)
        how: dict[str, Any] = {"batch_size": asked.batch_size, "shuffle": not in_order, "drop_last": asked.drop_last}
        return kind(dataset, sampler=sampler, **how, **options)
    check_guard(Path(run.so_far().task), options)
    sampled = None if sampler is None else SampledRows(sampler, run.seed)
    brought = Brought(run, dataset, deal, lambda: asked, labels=labels, length=length, sampled=sampled)
    run.bring(brought)
    course = Course(run, brought)
    if brought.is_stream:
        return StreamLoader(course, StreamPart(dataset, deals_itself), options)
    return PartLoader(course, dataset, batch_sampler=PartBatches(course), **options)


class LongLoader(DataLoader[Any]):
    """Alone, a stream whose length the script has said."""

    def __init__(self, length: int, dataset: Any, **options: Any) -> None:
        self._length = length
        super().__init__(dataset, **options)

    def __len__(self) -> int:
        assert self.batch_size is not None
        whole, rest = divmod(self._length, self.batch_size)
        return whole + bool(rest and not self.drop_last)


class ScriptLoader(DataLoader[Any]):
    """A DataLoader of a worker's part. Its `batch_size` is the one that was asked for, even if a batch_sampler or a stream
    makes the mini-batches."""

    def __init__(self, course: Course, dataset: Any, **options: Any) -> None:
        self._course = course
        super().__init__(dataset, **options)

    @property
    def batch_size(self) -> int:
        """Examples of a mini-batch, of all workers together."""
        return self._course.brought.asked().batch_size

    @batch_size.setter
    def batch_size(self, value: int | None) -> None:
        """torch sets its argument; a batch_sampler or a stream decides here."""

    def __len__(self) -> int:
        return self._course.parts_per_epoch


class PartLoader(ScriptLoader):
    """This worker's part of a data set whose rows have numbers."""

    def __iter__(self) -> Any:
        is_training = self._course.begin()
        batches, began = super().__iter__(), time.monotonic()
        for batch in batches:
            if is_training and not self._course.hands_out(time.monotonic() - began):
                return
            yield batch
            began = time.monotonic()
        if is_training:
            self._course.run.drew_all()


class PartBatches(Sampler[list[int]]):
    """The rows of this worker's mini-batches, one list each."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def __len__(self) -> int:
        return self._course.parts_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        parts = self._course.parts() if self._course.begin() else self._course.look()
        return (part.rows.tolist() for part in parts)


class StreamLoader(ScriptLoader):
    """This worker's part of a stream."""

    def __init__(self, course: Course, part: StreamPart, options: dict[str, Any]) -> None:
        self._part = part
        collate = options.get("collate_fn") or default_collate
        super().__init__(course, part, **options | {"batch_size": None, "collate_fn": collate})

    def __iter__(self) -> Any:
        is_training = self._course.begin()
        batches: Iterator[Any] = iter(())
        ended = object()
        for part in self._course.parts() if is_training else self._course.look():
            began = time.monotonic()
            batch = next(batches, ended)
            if batch is ended:
                self._tell(part)
                batches = super().__iter__()
                batch = next(batches)
            if is_training and not self._course.hands_out(time.monotonic() - began):
                return
            yield batch
        if is_training:
            self._course.run.drew_all()

    def _tell(self, part: Part) -> None:
        """Makes the stream start again, at this part. Its rows are numbers of every n-th example, which give this worker's
        place among n."""
        run = self._course.run
        config = run.so_far()
        lens, steps = shape_of(config, self._course.brought.dealt(config).manifest)
        place = int(part.rows[0]) % len(lens)
        done = (part.position - 1) % steps
        self._part.tell(place, len(lens), lens[place], steps, run.accumulate, done * run.accumulate)


def options_of(theirs: "DataLoader[Any]") -> dict[str, Any]:
    """The options of a user's DataLoader, to deal its rows again. Raises ConfigError if it has its own batch_sampler."""
    found = {name: getattr(theirs, name) for name in _OPTIONS if getattr(theirs, name, None)}
    sampler = None if is_stream(theirs.dataset) else theirs.sampler
    if sampler is not None and type(theirs.batch_sampler) is not BatchSampler:
        raise ConfigError(
            f"The DataLoader has its own batch_sampler ({type(theirs.batch_sampler).__name__}), which can't be dealt to "
            "workers. Give it a batch_size, and as sampler= what draws its rows."
        )
    if sampler is None and theirs.batch_size is None:
        del found["collate_fn"]  # it converts what comes one by one
    return found | {
        "dataset": theirs.dataset,
        "batch_size": theirs.batch_size,
        "drop_last": theirs.drop_last,
        "sampler": sampler,
    }


def rows_of(sampler: Any, dataset: Any) -> Any:
    """The rows that a sampler of torch's draws of this data set, each once; None where it does not draw so."""
    if type(sampler) is SubsetRandomSampler:
        return Subset(dataset, list(sampler.indices))
    if type(sampler) is RandomSampler and (sampler.replacement or len(sampler) != len(dataset)):
        return None
    return dataset if type(sampler) in (RandomSampler, SequentialSampler) else None


def _drawn(dataset: Any, shuffle: bool | None, sampler: Any) -> tuple[Any, bool, Any]:
    """The data set to deal, whether in random order, and the sampler where its draws are dealt. ConfigError where the arguments
    don't go together."""
    if is_stream(dataset):
        raise ConfigError(f"A {type(dataset).__name__} is a stream, which has no rows to draw. Leave out sampler.")
    if (rows := rows_of(sampler, dataset)) is not None:
        return rows, type(sampler) is not SequentialSampler if shuffle is None else shuffle, None
    if shuffle:
        raise ConfigError(f"A {type(sampler).__name__} has its own order. Leave out shuffle.")
    return dataset, False, sampler


def fitting(options: dict[str, Any]) -> dict[str, Any]:
    """Without those of a user's DataLoader that torch refuses where no other processes load."""
    if options.get("num_workers"):
        return options
    only = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
    return {name: value for name, value in options.items() if name not in only}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of DataLoader that can be handed on; ConfigError for others, with what to do."""
    if options.get("batch_sampler") is not None:
        raise ConfigError(
            "paceline.loader makes the mini-batches itself, so it takes no batch_sampler. Leave it out. What draws the rows "
            "may be a sampler. To keep your own DataLoader, use paceline.sampler."
        )
    if not options.get("in_order", True):
        raise ConfigError("in_order=False would change the order of the worker's mini-batches. Leave it out.")
    return {name: value for name, value in options.items() if name not in ("batch_sampler", "in_order")}


def checked_batch_size(batch_size: Any) -> int:
    """ConfigError where it is none."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ConfigError(
            f"batch_size is {batch_size!r}; expected a whole number of 1 or more: the examples of one step, of "
            "all workers together (each takes batch_size / workers)."
        )
    return batch_size

"""The rows that a script's own DataLoader draws: `paceline.sampler`."""

import gc
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from paceline.core.errors import ConfigError
from paceline.worker.script.course import Course, Run
from paceline.worker.script.loaders import PartBatches, checked_batch_size
from paceline.worker.script.training_data import Brought, Cut, Deal, check_dataset, is_stream, length_of, shape_of

_HOW = (
    "DataLoader(dataset, batch_size=64, sampler=paceline.sampler(dataset)), 64 being each worker's, or "
    "DataLoader(dataset, batch_sampler=paceline.sampler(dataset, batch_size=64)), 64 being all workers' together"
)


def sampler(
    run: Run | None,
    deal: Deal,
    dataset: Any,
    batch_size: int | None = None,
    *,
    shuffle: bool = True,
    drop_last: bool = False,
    labels: Any = None,
) -> "Sampler[Any]":
    """A sampler of this worker's rows, or with `batch_size` a batch sampler of its mini-batches; `run` None: of all rows.
    `deal`: who gets what. ConfigError where the arguments are none."""
    check_dataset(dataset)
    if is_stream(dataset):
        raise ConfigError(
            f"A {type(dataset).__name__} is a stream, whose examples have no numbers to draw. Use "
            "paceline.loader(dataset, batch_size=..., length=...) instead of the DataLoader."
        )
    if batch_size is not None:
        checked_batch_size(batch_size)
    elif drop_last:
        raise ConfigError("drop_last belongs to the DataLoader that makes the mini-batches. Give it there.")
    if run is None:
        length_of(dataset, None, False)
        rows: Any = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        return rows if batch_size is None else BatchSampler(rows, batch_size, drop_last)
    if batch_size is None:
        return RowSampler(run, deal, dataset, shuffle, labels)
    asked = Cut(batch_size, shuffle, drop_last)
    brought = Brought(run, dataset, deal, lambda: asked, labels=labels)
    run.bring(brought)
    return BatchesSampler(Course(run, brought))


class BatchesSampler(PartBatches):
    """This worker's mini-batches, as the batch_sampler of a DataLoader."""

    _is_checked = False

    def __iter__(self) -> Iterator[list[int]]:
        if not self._is_checked and _cutters(self):
            raise ConfigError(
                "The DataLoader has a paceline.sampler with a batch_size as sampler=. Give it as batch_sampler=: "
                f"{_HOW}."
            )
        self._is_checked = True
        is_training = self._course.begin()
        is_handed_out = is_training and not _reads_ahead(self)
        for rows in super().__iter__():
            if is_handed_out:
                self._course.hands_out()
            yield rows
        if is_handed_out:
            self._course.run.drew_all()


class RowSampler(Sampler[int]):
    """This worker's rows, as the sampler of a DataLoader whose batch_size is the worker's own."""

    def __init__(self, run: Run, deal: Deal, dataset: Any, shuffle: bool, labels: Any) -> None:
        self._run = run
        self._shuffle = shuffle
        brought = Brought(run, dataset, deal, self.cut, labels=labels)
        self._asked: Cut | None = None
        run.bring(brought)
        self._course = Course(run, brought)

    def cut(self) -> Cut:
        """How the DataLoader that holds this sampler cuts. ConfigError where none holds it, or several that differ."""
        if self._asked is None:
            self._asked = self._held()
        return self._asked

    def _held(self) -> Cut:
        found = {(cutter.batch_size, cutter.drop_last) for cutter in _cutters(self)}
        if len(found) != 1:
            seen = "no DataLoader with a batch_size has" if not found else "DataLoaders with different batch sizes have"
            raise ConfigError(
                f"Paceline can't know the size of a worker's mini-batches, because {seen} this paceline.sampler "
                f"as sampler. Make one before the first epoch: {_HOW}."
            )
        ((batch_size, drop_last),) = found
        drop_last |= self._run.accumulate > 1
        return Cut(batch_size * self._run.workers, self._shuffle, drop_last, fills=True)

    def __len__(self) -> int:
        """Examples that an epoch takes of the best supplied worker, so that all workers' DataLoaders are equally long."""
        config = self._run.so_far()
        return max(shape_of(config, self._course.brought.dealt(config).manifest)[0])

    def __iter__(self) -> Iterator[int]:
        """One pass, for a BatchSampler would fill its last mini-batch from the next one."""
        self.cut()
        is_training = self._course.begin()
        parts = self._course.parts(one_pass=True) if is_training else self._course.look()
        is_handed_out = is_training and not _reads_ahead(self)
        for part in parts:
            if is_handed_out:
                self._course.hands_out()
            yield from map(int, part.rows)
        if is_handed_out:
            self._run.drew_all()


def _cutters(sampler: Any) -> list[BatchSampler]:
    """The BatchSamplers of torch's that draw from this sampler: a DataLoader makes one, and tells the sampler nothing."""
    return [
        one
        for one in gc.get_objects()
        if issubclass(type(one), BatchSampler) and one.__dict__.get("sampler") is sampler
    ]


def _reads_ahead(sampler: Any) -> bool:
    """Whether a DataLoader with its own processes draws from this sampler: the script has had less than was drawn."""
    for one in gc.get_objects():
        if issubclass(type(one), DataLoader):
            found = one.__dict__
            if found.get("num_workers") and (found.get("sampler") is sampler or found.get("batch_sampler") is sampler):
                return True
    return False

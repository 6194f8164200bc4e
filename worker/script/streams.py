"""This worker's mini-batches of a stream, which has no rows by number."""

import warnings
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any, TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from paceline.core.errors import DataError

T = TypeVar("T")


class StreamPart(IterableDataset[list[Any]]):
    """Mini-batches, as lists of examples, of every n-th example of a stream; the same however many DataLoader processes read
    it, since each of them reads all of it and keeps its turns. For a stream that deals itself, get_worker_info() returns that
    process j of k on worker i of n is number i * k + j of n * k, and all that it yields is kept."""

    def __init__(self, stream: Any, deals_itself: bool) -> None:
        self._stream = stream
        self._deals_itself = deals_itself
        self._told = torch.zeros(6, dtype=torch.int64)
        self._told.share_memory_()  # type: ignore[no-untyped-call]  # DataLoader processes that persist see it, too

    def tell(self, place: int, places: int, length: int, steps: int, parts: int, done: int) -> None:
        """What the next pass is: this worker's place among how many, its examples of a whole pass, in how many mini-batches
        they are cut and each of these in how many parts, and how many parts it has had."""
        self._told[:] = torch.tensor([place, places, length, steps, parts, done])

    def __iter__(self) -> Iterator[list[Any]]:
        place, places, length, steps, parts, done = self._told.tolist()
        info = get_worker_info()
        number, readers = (0, 1) if info is None else (info.id, info.num_workers)
        examples = self._examples(place, places, number, readers)
        for part, size in enumerate(sizes_of_pass(length, steps, parts)):
            is_mine = (part - done) % readers == number
            if is_mine and part >= done:
                yield list(islice(examples, size))
            elif is_mine or not self._deals_itself:
                for _ in islice(examples, size):
                    pass

    def _examples(self, place: int, places: int, number: int, readers: int) -> Iterator[Any]:
        """Yields this reader's examples without an end: if the stream ends before the epoch, it starts again, with a
        warning."""
        turn, every, least = (0, 1, 1) if self._deals_itself else (place, places, places)
        who = (place * readers + number, places * readers) if self._deals_itself else (0, 1)
        while True:
            count = 0
            for count, example in enumerate(_read_as(self._stream, *who), 1):
                if (count - 1) % every == turn:
                    yield example
            if count < least:
                raise DataError(
                    f"The stream ended after {count:,} examples, too few for {places} workers. Give more data, or "
                    "use fewer workers. With deals_itself=True the stream must have examples for each worker and "
                    "for each process of its DataLoader."
                )
            turn = (turn - count) % every
            if not (self._deals_itself and readers > 1):  # these have no equal numbers of mini-batches
                warnings.warn(
                    f"The stream ended after {count:,} examples, before the epoch did, and starts again. Correct length=, or "
                    "the stream's __len__.",
                    stacklevel=2,
                )


def sizes_of_pass(length: int, steps: int, parts: int) -> Iterator[int]:
    """Examples of each part of each mini-batch of a pass, none of them empty: as `Sampler` and `course.cut` cut."""
    for size in _sizes(length, steps):
        yield from _sizes(size, parts)


def _sizes(length: int, parts: int) -> Iterator[int]:
    """The sizes of `parts` nearly equal parts, as numpy.array_split cuts; empty ones, which come last, are left out."""
    size, longer = divmod(length, parts)
    return chain(repeat(size + 1, longer), repeat(size, parts - longer if size else 0))


def _read_as(stream: Any, number: int, readers: int) -> Iterator[Any]:
    """Reads the stream; in its code get_worker_info() says that it is reader `number` of `readers`."""
    before = get_worker_info()
    if before is None and readers == 1:
        yield from stream
        return
    seed = torch.initial_seed() if before is None else before.seed
    told = torch_worker.WorkerInfo(id=number, num_workers=readers, seed=seed, dataset=stream)
    examples = _as(told, lambda: iter(stream))
    ended = object()
    while (example := _as(told, lambda: next(examples, ended))) is not ended:
        yield example


def _as(told: Any, act: Callable[[], T]) -> T:
    before = torch_worker._worker_info
    torch_worker._worker_info = told
    try:
        return act()
    finally:
        torch_worker._worker_info = before

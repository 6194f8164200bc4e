"""Updates of a few elements of a slice: how their places travel, how many of them make one, which of them have changed."""

from collections import deque
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from paceline.core.errors import BadPush
from paceline.core.values import Places, Sparse, Vector

_SHORT, _LONG = 2, 4
"""First byte of encoded places: how many bytes each step from one to the next takes."""


def encode_places(places: Places) -> bytes:
    """Encodes rising places as the steps from each to the next: in two bytes each if that is enough (first byte 2), or in four
    (first byte 4); little endian. No places give no bytes."""
    if not len(places):
        return b""
    steps = places.copy()
    steps[1:] -= places[:-1]
    width = _SHORT if steps.max() < 1 << 16 else _LONG
    return bytes([width]) + steps.astype(f"<u{width}").tobytes()


def decode_places(data: bytes, length: int, who: str) -> Places:
    """The places, checked: rising, none twice, all below `length`. BadPush where they are not. `who`: the sender."""
    if not data:
        return np.empty(0, np.int64)
    width = data[0]
    if width not in (_SHORT, _LONG) or len(data) == 1 or (len(data) - 1) % width:
        raise BadPush(
            f"{who} sent {len(data):,} bytes of positions that begin with {width}; expected 2 or 4, and then a "
            "whole number of positions of that size."
        )
    steps = np.frombuffer(data, f"<u{width}", offset=1)
    places = np.cumsum(steps, dtype=np.int64)
    if not steps[1:].all() or places[-1] >= length:
        raise BadPush(
            f"{who} sent positions that repeat, or that reach {places[-1]:,} in a slice of {length:,}. Nothing "
            "was changed."
        )
    return places


def merged(updates: Sequence[Sparse], length: int) -> Sparse:
    """Their sum, added up in this order."""
    if len(updates) == 1:
        return updates[0]
    places, back = np.unique(
        np.concatenate([np.empty(0, np.int64), *(one.places for one in updates)]), return_inverse=True
    )
    values = np.zeros(len(places), np.float32)
    start = 0
    for one in updates:
        values[back[start : start + len(one.places)]] += one.values  # places of one update are unique
        start += len(one.places)
    return Sparse(places, values, length)


def overwritten(old: Sparse, new: Sparse) -> Sparse:
    """Both, with the new values where both have one: 'if there is a collision the server will only keep the latest version'
    [Hogwild]."""
    stays = np.isin(old.places, new.places, assume_unique=True, invert=True)
    places = np.concatenate([old.places[stays], new.places])
    order = np.argsort(places, kind="stable")
    values = np.concatenate([old.values[stays], new.values])
    return Sparse(places[order], values[order], len(new))


class Changes:
    """Which places each fold has changed, as far back as memory allows: as many places as the slice has elements.
    Not thread-safe."""

    def __init__(self, length: int, version: int) -> None:
        self._most = length
        self._since = version
        self._folds: deque[tuple[int, Places]] = deque()
        self._kept = 0

    def note(self, version: int, places: Places) -> None:
        """The fold that made this version has changed these places."""
        if not len(places):
            return
        self._folds.append((version, places))
        self._kept += len(places)
        while self._kept > self._most:
            self._since, old = self._folds.popleft()
            self._kept -= len(old)

    def since(self, version: int) -> Places | None:
        """The places that differ from this version; None where it is too long ago to say."""
        if version < self._since:
            return None
        found = [places for _, places in takewhile(lambda fold: fold[0] > version, reversed(self._folds))]
        if not found:
            return np.empty(0, np.int64)
        return found[0] if len(found) == 1 else distinct(np.concatenate(found))


def add_at(weights: Vector, update: Sparse, factor: float) -> None:
    """weights[places] += factor * values, at a cost that follows the places alone."""
    weights[update.places] += np.float32(factor) * update.values


def distinct(places: Places) -> Places:
    """The places in rising order, each once; quick where they are a few runs that rise, since a stable sort merges these.
    `np.unique` fills a hash table, which takes twenty times as long."""
    ordered = np.sort(places, kind="stable")
    is_new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def sparse_of(total: npt.NDArray[np.float32]) -> Sparse:
    """What is not zero in it."""
    places = np.flatnonzero(total)
    return Sparse(places, total[places], len(total))

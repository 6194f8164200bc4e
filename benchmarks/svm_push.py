"""What a sparse push costs a server, in process: it must follow the places of the push, not the width of the slice."""

import resource
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.builtin.asp import Asp
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.values import Base, Push, Seat, Sparse, View

WIDTHS, PLACES = (10**4, 10**6, 10**8), 20_000
"""Slices that a push goes to, and how many weights it changes."""


class PushCost(NamedTuple):
    """What a push of a few weights costs a server, without the wire."""

    width: int
    places: int
    seconds: float
    """Of the push and its answer."""
    memory: int
    """That the process has taken for the slice and its pushes (bytes)."""


def push_costs(widths: Sequence[int] = WIDTHS, places: int = PLACES, pushes: int = 50) -> Iterator[PushCost]:
    """Pushes of two workers in turn, each to weights that nobody has seen before its last one."""
    for width in widths:
        rng, before = np.random.default_rng(0), _resident()
        served = ModelSlice(width, Asp(), Sgd(lr=1.0), folding=SparseFolding)
        served.initialise(np.ones(width, np.float32), b"")
        served.view(View(1, {name: Seat(1, 0) for name in ("worker-0", "worker-1")}))
        seconds, known = [], {"worker-0": 0, "worker-1": 0}
        count = min(places, width // 20)  # the slice knows the changes of a few pushes only
        for push in range(pushes):
            name, clock = f"worker-{push % 2}", push // 2 + 1
            chosen = np.sort(rng.choice(width // count, count) + np.arange(count) * (width // count))
            update, base = Sparse(chosen, np.ones(count, np.float32), width), Base(served.term, known[name])
            start = perf_counter()
            served.push(Push(name, 1, clock, update, 1, base, 1, 0.0))
            served.answer(base, None, chosen[:0], width)
            seconds.append(perf_counter() - start)
            known[name] = served.version
        yield PushCost(width, count, median(seconds), _resident() - before)


def print_push_costs(found: Iterable[PushCost]) -> None:
    """A line for each slice."""
    print(f"{'a push and its answer, in process':44}{'places':>9}{'ms':>9}{'ns/place':>10}{'MB':>8}")
    for cost in found:
        print(
            f"{f'{cost.width:,} weights':44}{cost.places:9,}{1e3 * cost.seconds:9.3f}"
            f"{1e9 * cost.seconds / cost.places:10.0f}{cost.memory / 1e6:8.1f}"
        )


def _resident() -> int:
    """Memory of this process (bytes); Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

"""What a policy costs besides the arithmetic: one push of an almost empty slice (admission, clocks, the policy's notes, who
may go on, replies) against one SGD fold of ResNet-50's weights, in one run. Run: python -m benchmarks.bookkeeping [N]"""

import random
import sys
from collections.abc import Sequence
from statistics import mean, median
from time import thread_time
from typing import NamedTuple

import numpy as np

from benchmarks.contenders import RESNET_50
from paceline.core import registry
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.policy import PACKAGE, build_policy
from paceline.core.settings.config import Options
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Base, Dense, Push, Seat, View

MEMBERS = (8, 64)
TARGET = 0.01
"""Share of a fold that the bookkeeping of one push may take."""
LENGTH = 16
"""Elements of the slice: its own folds take next to nothing."""
PUSHES = 4000


class Row(NamedTuple):
    """One policy with this many members: mean seconds of a push, and their share of a fold."""

    policy: str
    members: int
    seconds: float
    share: float


def bookkeeping_rows(elements: int = RESNET_50, members: Sequence[int] = MEMBERS, pushes: int = PUSHES) -> list[Row]:
    """Every policy with each number of members. Needs memory for three arrays of `elements`."""
    fold = fold_seconds(elements)
    rows = []
    for name in registry.names(PACKAGE):
        for count in members:
            seconds = push_seconds(name, count, pushes)
            rows.append(Row(name, count, seconds, seconds / fold))
    return rows


def fold_seconds(elements: int, rounds: int = 9) -> float:
    """Median of an in-place step of SGD with momentum."""
    weights, gradient = np.zeros(elements, np.float32), np.ones(elements, np.float32)
    optimizer = Sgd()
    slots, seconds = optimizer.new_slots(elements), []
    for step in range(1, rounds + 2):
        start = thread_time()
        optimizer.step(weights, weights, gradient, 1.0, 1e-6, slots, step)
        seconds.append(thread_time() - start)
    return median(seconds[1:])


def push_seconds(name: str, members: int, pushes: int) -> float:
    """Mean of a push, with an eighth of the members ten times slower, so that the others wait where the policy says so."""
    rng, workers = random.Random(0), [f"worker-{number}" for number in range(members)]
    speeds = {worker: 0.1 if number % 8 == 7 else 1.0 for number, worker in enumerate(workers)}
    one = ModelSlice(LENGTH, build_policy(Options(name=name)), Sgd())
    one.initialise(np.zeros(LENGTH, np.float32), b"")
    one.view(View(1, {worker: Seat(1, 0) for worker in workers}, 1_000_000))
    ready, clocks, bases = dict(speeds), dict.fromkeys(workers, 0), dict.fromkeys(workers, Base(1, 0))
    update, seconds, now = Dense(np.full(LENGTH, 1e-3, np.float32)), [], 0.0
    for _ in range(pushes):
        worker = rng.choices(list(ready), list(ready.values()))[0]
        del ready[worker]
        now += rng.expovariate(members)
        clocks[worker] += 1
        push = Push(worker, 1, clocks[worker], update, 32, bases[worker], 1, now)
        start = thread_time()
        replies = one.push(push)
        seconds.append(thread_time() - start)
        for reply in replies:
            bases[reply.worker] = Base(reply.term, reply.weights.version)
            ready[reply.worker] = speeds[reply.worker]
            one.release(reply.weights)
    return mean(seconds[pushes // 10 :])


def main() -> None:
    """Prints the shares of one run."""
    rows = bookkeeping_rows(int(sys.argv[1]) if len(sys.argv) > 1 else RESNET_50)
    print(f"{'policy':18}{'members':>8}{'a push, us':>12}{'of a fold':>11}   target below {TARGET:.0%}")
    for row in rows:
        verdict = "" if row.share < TARGET else "   missed"
        print(f"{row.policy:18}{row.members:8}{row.seconds * 1e6:12.1f}{row.share:11.3%}{verdict}")


if __name__ == "__main__":
    main()

"""Scales pushes whose norm is above a cap down to it, before a slice uses them, and counts them by worker."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.core.optimizers.clip import l2_norm
from paceline.core.values import Empty, Push, Sparse, Vector

_SHRUNK = 1 - 2.0**-22
"""Keeps the norm at or below the cap after each value is rounded to float32 (ratio)."""
_RECENT = 50.0
"""About how many pushes a worker's share looks back (pushes)."""


@dataclass(slots=True)
class Capped:
    """What became of one worker's pushes."""

    pushes: int = 0
    """That were above the cap."""
    share: float = 0.0
    """Of its last pushes, newer ones counting more (ratio)."""


class NormCap:
    """Norm clipping at the server, known from federated learning [Sun et al. 2019]: a push p becomes p * min(1, cap / norm(p)),
    where norm is the L2 norm of what this server got of it, without running statistics. The factor that a script puts on the
    rate counts in the norm, since it makes the step longer. A push at or below the cap keeps its bits. The factor depends on
    the push alone, so one that is sent again is scaled alike."""

    def __init__(self, cap: float) -> None:
        self._cap = cap
        self._workers: dict[str, Capped] = {}

    def hold(self, push: Push, weights: Callable[[Vector], list[Vector]] = lambda vector: [vector]) -> bool:
        """Scales the push's values, which are finite, in place if they are above the cap; returns whether they were. `weights`:
        the parts of a dense vector that are no running statistics. Any thread may call it. Sparse folding takes no factors
        on the rate, so only a dense push's count."""
        update = push.update
        if isinstance(update, Empty):
            return False
        parts, rates = (
            ([update.values], ()) if isinstance(update, Sparse) else (weights(update.values), push.manner.rates)
        )
        norm = math.hypot(*map(l2_norm, parts)) * max((1.0, *rates))
        if norm <= self._cap:
            return False
        # in float64, since a factor below 1e-38 has few bits as a float32
        for part in parts:
            np.multiply(part, np.float64(self._cap / norm * _SHRUNK), out=part, casting="same_kind")
        return True

    def count(self, worker: str, was_capped: bool) -> None:
        """Notes a push that has been counted. One thread at a time."""
        found = self._workers.setdefault(worker, Capped())
        found.pushes += was_capped
        found.share += (was_capped - found.share) / _RECENT

    @property
    def workers(self) -> dict[str, Capped]:
        """By name, all whose pushes were counted. Any thread may ask."""
        return self._workers.copy()

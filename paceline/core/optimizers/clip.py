"""Clipping: a gradient is scaled down to a norm over the whole model, not slice by slice: by a worker before it pushes, or by
who steps on the mean of all."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Literal

import numpy as np

from paceline.core.settings.config import ClipConfig
from paceline.core.values import Vector

WINDOW = 200
"""Norms that the quantile is taken of."""
FEWEST = 20
"""Norms before a quantile limits anything."""
_BLOCK = 8192
"""Elements summed at a time: 64 KiB of float64, and few enough that BLAS stays on one thread, so the bits are the same
on every machine (elements)."""


class Clip:
    """Scales gradients down so that their norms keep the limits: a fixed one, the running
    quantile of this worker's own last 200 norms (before clipping, this one among them), or the smaller of both. The
    quantile limits nothing until 20 norms are seen. Not thread-safe."""

    def __init__(self, config: ClipConfig, of: Literal["push", "mean"] = "push") -> None:
        """`of`: the gradients that are brought here; there are no limits where the settings limit others."""
        self._norm = config.norm if config.of == of else None
        self._quantile = config.quantile if config.of == of else None
        self._seen: deque[float] = deque(maxlen=WINDOW)

    @property
    def limits(self) -> bool:
        """Whether there is any limit; without one the norm need not be computed."""
        return self._norm is not None or self._quantile is not None

    def hold(self, parts: Iterable[Vector], scale: float = 1.0) -> bool:
        """Scales the gradient that lies in these parts, in place; returns whether it was above a limit. `scale`: what will make
        it the gradient whose norm counts (1 / examples of a sum)."""
        if not self.limits:
            return False
        parts = tuple(parts)
        factor = self.factor(math.hypot(*map(l2_norm, parts)) * scale)
        for part in parts if factor < 1 else ():
            np.multiply(part, np.float32(factor), out=part)
        return factor < 1

    def factor(self, norm: float) -> float:
        """min(1, limit / norm). 1 for a norm that is not finite, which is not remembered: no factor repairs such a
        gradient, and 0 would hide it."""
        if not math.isfinite(norm):
            return 1.0
        limit = math.inf if self._norm is None else self._norm
        if self._quantile is not None:
            self._seen.append(norm)
            if len(self._seen) >= FEWEST:
                limit = min(limit, float(np.quantile(self._seen, self._quantile)))
        return min(1.0, limit / norm) if norm > 0 else 1.0


def l2_norm(vector: Vector) -> float:
    """The L2 norm of a float32 vector, summed in float64, so no finite vector overflows; NaN or infinite where an
    element is. Takes no memory in proportion to the vector."""
    total, block = 0.0, np.empty(min(_BLOCK, len(vector)), dtype=np.float64)
    for start in range(0, len(vector), _BLOCK):
        part = vector[start : start + _BLOCK]
        wide = block[: len(part)]
        np.copyto(wide, part)
        total += float(wide @ wide)
    return math.sqrt(total)

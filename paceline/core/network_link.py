"""The speed of a network link, as people write it, and how long a message takes on it."""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Self

from paceline.core.units import bits_per_second, percent, seconds_with_unit

SEGMENT = 1460
"""Data in one TCP segment on Ethernet (bytes)."""
_MATHIS = sqrt(3 / 2)
"""C of [Mathis et al. 1997], for losses at random and an acknowledgement of every segment."""


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """A link between one node and the others, alike in both directions."""

    bandwidth: float
    """Bits per second, above 0."""
    latency: float = 0.0
    """Of a message one way (seconds)."""
    loss: float = 0.0
    """Share of packets that get lost (ratio, below 1)."""

    @classmethod
    def read(cls, text: str) -> Self:
        """'10Mbit', '10Mbit,50ms' or '10Mbit,50ms,1%'; ValueError says what is wrong."""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > 3:
            raise ValueError(f"got {text!r} as a link; write BANDWIDTH,LATENCY,LOSS, like 10Mbit,50ms,1%.")
        readers = (bits_per_second, seconds_with_unit, percent)
        link = cls(*(read(part) for read, part in zip(readers, parts, strict=False)))
        if link.loss and not link.latency:
            raise ValueError(f"got {text!r}, a loss without latency, which costs nothing. Give a latency above 0.")
        return link

    @property
    def rate(self) -> float:
        """What one TCP stream reaches (bytes per second): the bandwidth, or with losses at most MSS / RTT * C / sqrt(p)
        [Mathis et al. 1997]."""
        most = _MATHIS * SEGMENT / (2 * self.latency * sqrt(self.loss)) if self.loss else inf
        return min(self.bandwidth / 8, most)

    def takes(self, size: int) -> float:
        """Time until a message of this size (bytes) has come to the other side (seconds)."""
        return self.latency + size / self.rate

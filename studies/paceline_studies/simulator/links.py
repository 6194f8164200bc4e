"""Links of a known speed in virtual time."""

from collections.abc import Callable, Mapping
from typing import Any

from paceline_studies.simulator.timeline import Timeline

LATENCY = (0.002, 0.02)
"""Of a message whose values take time on links."""


class Links:
    """Links of a known speed between all nodes and one switch. What a node sends goes out one after the other, and what it gets
    comes in one after the other. Made for one training."""

    def __init__(self, speed: float, slower: Mapping[str, float] | None = None) -> None:
        """`speed`: of a link, each way (values in a step's time). `slower`: by what those of some nodes are slower."""
        self._speed = speed
        self._slower = slower or {}
        self._free: dict[tuple[str, str], float] = {}
        """When a node's link is free again, out and in."""

    def carry(
        self, time: Timeline, latency: float, way: tuple[str, str], values: int, action: Callable[[], Any]
    ) -> None:
        """`action` happens when the message has come from one node to the other. `way`: their names."""
        sender, to = way
        begins = max(time.now, self._free.get((sender, "out"), 0.0))
        sent = self._free[sender, "out"] = begins + self._takes(sender, values)

        def comes() -> None:
            free = max(time.now, self._free.get((to, "in"), 0.0)) + self._takes(to, values)
            self._free[to, "in"] = free
            time.after(max(free, sent) + latency - time.now, action)

        time.after(begins - time.now, comes)

    def _takes(self, node: str, values: int) -> float:
        return values * self._slower.get(node, 1.0) / self._speed

"""Sums over a run of what each process counts from 0 on, though processes are started again."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Process:
    """The present one of a name."""

    start: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    """At the last look."""

    def is_followed_by(self, start: int, counts: Mapping[str, float]) -> bool:
        """Whether the next look is at another process: it has a higher number, or in a line without one a smaller count."""
        if start and self.start:
            return start > self.start
        return any(count < self.counts.get(name, 0.0) for name, count in counts.items())


class Counters:
    """Fed with each look at a process. Not thread-safe."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, float]] = {}
        """Of each process by name: what all that had this name have counted together."""
        self._processes: dict[str, _Process] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._processes

    def add(self, name: str, start: int, counts: Mapping[str, float]) -> None:
        """The next look at a process. `start`: its number among those with this name (an incarnation or a term), 0 where the
        line does not say it; `counts`: empty where it has not been heard yet."""
        process = self._processes.setdefault(name, _Process())
        if process.is_followed_by(start, counts):
            process.counts = {}
        sums = self.sums.setdefault(name, {})
        for count, now in counts.items():
            sums[count] = sums.get(count, 0.0) + max(0.0, now - process.counts.get(count, 0.0))
        process.start = start or process.start
        process.counts = {**process.counts, **counts}

    def begin(self, name: str, start: int, counts: Mapping[str, float]) -> None:
        """What a process has counted until this look is left out."""
        self.add(name, start, counts)
        del self.sums[name]

    def total(self, count: str) -> float:
        """Of all processes."""
        return sum(sums.get(count, 0.0) for sums in self.sums.values())

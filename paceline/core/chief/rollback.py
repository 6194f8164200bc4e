"""How a run that has diverged goes back: when it has, which snapshots are good, and when it gives up.

A run has diverged when steps without a finite gradient last on every member, with `divergence.losses` also steps that explode
(`Warnings.diverged`). Then each server goes on with the weights of a good snapshot, and every learning rate is multiplied by
`divergence.factor`. The order is a change of policy to the present policy (`Switch.back`, `Switch.rate`), so it comes to all
slices at one moment, under every policy, and survives a restart of any of them.

A snapshot is good when it was on disk of its server for a while in which every member computed a step and none reported one
that is bad or explodes. Until there is one, the oldest that was seen is: the first weights."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.core.settings.config import Config

_REPORTS = 3
"""Heartbeats without a bad step after which a snapshot is good."""
_STEPS = 2
"""Pushes of each member meanwhile: the gradient of the first may be of older weights."""


@dataclass(frozen=True, slots=True)
class Point:
    """One snapshot of each server."""

    versions: tuple[int, ...]
    epoch: float
    """About when they were written."""


class Divergence:
    """The chief's part; the servers report again to a restarted chief. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._most = config.divergence.rollbacks if config.servers and config.updates == "dense" else 0
        self._factor = config.divergence.factor
        self._servers = range(config.servers)
        self._margin = _REPORTS * config.heartbeat
        self._stored: dict[int, frozenset[int]] = {}
        """By server: the versions of its snapshots on disk."""
        self._spared: dict[int, frozenset[int]] = {}
        """By server: the versions that it has confirmed to keep."""
        self.good: Point | None = None
        """Where a run that diverges goes back to."""
        self._first: Point | None = None
        """What becomes good, while nothing is, once all servers have confirmed to keep it."""
        self._next: Point | None = None
        """What becomes good if all stays well."""
        self._since = 0.0
        """When that was chosen (seconds)."""
        self._clocks: Mapping[str, int] = {}
        """Each member's clock then."""
        self._diverged = -1
        """Snapshots up to this version may hold what the run went back from."""
        self.done = 0
        """How often the run has gone back."""
        self.gave_up = False
        """Whether the run ends because it can learn no more."""

    # which snapshots are good
    def reported(self, server: int, stored: Collection[int], spared: Collection[int]) -> None:
        """A server says which versions it has on disk, and which of them it keeps however old they are."""
        self._stored[server] = frozenset(stored)
        self._spared[server] = frozenset(spared)

    def look(self, is_well: bool, rounds: bool, epoch: float, now: float, clocks: Mapping[str, int]) -> None:
        """Time passes. `is_well`: the run trains, and no member has reported a bad step since its last good one; `clocks`: as
        members have reported them."""
        if not self._most:
            return
        if self.good is not None and self._is_gone(self.good):  # all servers went back to a common snapshot before it
            self.good = None
        if self._next is not None and (not is_well or self._is_gone(self._next)):
            self._next = None
        if self.good is None:
            self._choose_first(rounds, epoch)
        if not is_well or (self._next is not None and not (self._has_lasted(now) and self._was_tried(clocks))):
            return
        if self._next is not None:
            if not self._is_safe(self._next):
                return
            self.good = self._next
        self._next = self._choose(rounds, epoch, max, self._diverged)
        self._since, self._clocks = now, dict(clocks)

    def _has_lasted(self, now: float) -> bool:
        return now - self._since >= self._margin

    def _was_tried(self, clocks: Mapping[str, int]) -> bool:
        """Whether all who are still members have computed on it, or on later weights."""
        return all(clock >= self._clocks[worker] + _STEPS for worker, clock in clocks.items() if worker in self._clocks)

    def spared(self, server: int) -> list[int]:
        """The versions of this server's snapshots that must not be removed."""
        points = (point for point in (self.good, self._first, self._next) if point is not None)
        return sorted({point.versions[server] for point in points})

    def _choose(
        self, rounds: bool, epoch: float, pick: Callable[[Collection[int]], int], after: int = -1
    ) -> Point | None:
        """Of versions behind `after`. In rounds, all slices are of one version; None where there is none."""
        every = [self._stored.get(server, frozenset()) for server in self._servers]
        stored = [frozenset(version for version in each if version > after) for each in every]
        if rounds:
            stored = [frozenset.intersection(*stored)] * len(stored)
        if not all(stored):
            return None
        versions = tuple(pick(each) for each in stored)
        return Point(versions, epoch if any(versions) else 0.0)

    def _choose_first(self, rounds: bool, epoch: float) -> None:
        if self._first is None or self._is_gone(self._first):
            self._first = self._choose(rounds, epoch, min)
        if self._first is not None and self._is_safe(self._first):
            self.good, self._first = self._first, None

    def _is_gone(self, point: Point) -> bool:
        """Whether a server says that it lacks its snapshot."""
        return any(point.versions[server] not in stored for server, stored in self._stored.items())

    def _is_safe(self, point: Point) -> bool:
        """Whether every server has its snapshot and will keep it."""
        return all(
            point.versions[server] in self._stored.get(server, frozenset()) & self._spared.get(server, frozenset())
            for server in self._servers
        )

    # going back
    @property
    def is_on(self) -> bool:
        """Whether this run goes back at all."""
        return self._most > 0

    @property
    def rate(self) -> float:
        """What every learning rate is multiplied by (ratio)."""
        return float(self._factor**self.done)

    @property
    def refusal(self) -> str:
        """Why the run can't go back, in words; empty while it can."""
        if not self.is_on:
            return "it does not go back (divergence.rollbacks)"
        if self.done >= self._most:
            times = "once" if self.done == 1 else f"{self.done} times"
            return f"it went back {times}, to a learning rate x {self.rate:.4g} (divergence.rollbacks={self._most})"
        return "" if self.good is not None else "no snapshot of every server was on disk, so it could not go back"

    @property
    def may_find(self) -> bool:
        """Whether no snapshot is good yet, but one may soon be: some server has not said which it has, or that it keeps it."""
        return self.good is None and (self._first is not None or len(self._stored) < len(self._servers))

    def go_back(self) -> tuple[Point, str]:
        """Counts a return to the good snapshots; returns these, and what is said of it."""
        assert self.good is not None
        self.done += 1
        self._next = None
        versions = sorted(set(self.good.versions))
        which = (
            f"version {versions[0]:,}" if len(versions) == 1 else f"versions {', '.join(f'{v:,}' for v in versions)}"
        )
        said = f"went back to {which} (epoch {self.good.epoch:.1f}), learning rate x {self.rate:.4g}"
        return self.good, f"{said}; {self.done} of {self._most}"

    def begins_again(self, version: int) -> None:
        """Every slice trains on good weights from this version on."""
        self._diverged = version - 1

    # the chief's disk
    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        good = None if self.good is None else [self.good.versions, self.good.epoch]
        return {"divergence": {"good": good, "done": self.done, "diverged": self._diverged, "gave_up": self.gave_up}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`; a run of an older release has none."""
        found = state.get("divergence", {})
        self.done = found.get("done", 0)
        self._diverged = found.get("diverged", -1)
        self.gave_up = found.get("gave_up", False)
        if (good := found.get("good")) is not None:
            self.good = Point(tuple(good[0]), good[1])

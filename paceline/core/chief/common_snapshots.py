"""In lock-step: the versions at which all servers write a snapshot, and the one to which they go back together."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.chief.membership import ROUNDS_AHEAD

_PATIENCE, _WITH_STORE = 10.0, 600.0
"""Time that a server has for a snapshot before another version is named, on its disk and in an object store (seconds). A slow
store would otherwise never have the same version of two servers."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """The order to go on from an older snapshot, under a new term."""

    number: int = 0
    """Only grows; 0: there was no order yet."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a server has said last."""

    kept: frozenset[int] = frozenset()
    """Versions of its snapshots on disk."""
    due: int = 0
    """The named version that it knows."""


class Returns:
    """Whether a worker that lacks a slice's older weights gains anything by letting all servers go back. It does not where it
    had left, and a server lost its last pushes before it joined again: the slices then differ in its clocks at every version,
    and those that have more of them do not wait for it. Not thread-safe."""

    def __init__(self) -> None:
        self._last: list[tuple[int, int]] | None = None

    def help(self, standings: Sequence[tuple[int, int]]) -> bool:
        """Whether to go back from here: not if all servers have since the last time, and the worker's clocks are the same.
        `standings`: its (term, clock) on each slice."""
        before, self._last = self._last, list(standings)
        return before is None or not all(
            new[0] > old[0] and new[1] == old[1] for old, new in zip(before, standings, strict=True)
        )

    def trains(self) -> None:
        """The worker trains, so what comes next is another case."""
        self._last = None


class CommonSnapshots:
    """Slices in lock-step that all come back at one version have lost the same rounds, which can be computed again with the
    same bits. The servers report again to a restarted chief. Not thread-safe."""

    def __init__(self, servers: int, has_store: bool = False) -> None:
        """`servers`: how many, including the chief's own; `has_store`: they send their snapshots to an object store."""
        self._servers = range(servers)
        self._patience = _WITH_STORE if has_store else _PATIENCE
        self._reports: dict[int, Report] = {}
        self.due = 0
        """The version at which every server writes its next snapshot; 0: none is named."""
        self._named_at: float | None = None
        self.back = GoBack()
        """The newest order."""
        self._done: set[int] = set()
        """Servers that have followed it."""

    def reported(self, server: int, kept: Collection[int], due: int, back: int) -> None:
        """A server says which versions it has on disk, which named version it knows, and which order it has followed."""
        self._reports[server] = Report(frozenset(kept), due)
        if back == self.back.number:
            self._done.add(server)
        elif self.order(server) is not None and self.back.version not in kept:  # its snapshot turned out to be damaged
            self._order_anew()

    @property
    def has_all(self) -> bool:
        """Whether every server has reported, so that `newest` is known."""
        return self._reports.keys() >= set(self._servers)

    # names
    def is_time(self, pause: float, now: float) -> bool:
        """Whether `pause` (seconds) is over since the last version was named, or since the first look, and every server has
        written that one or has had its time for it."""
        if len(self._servers) < 2 or self.is_going_back:
            return False
        if self._named_at is None:
            self._named_at = now
        passed = now - self._named_at
        return passed >= pause and (self.is_written or passed > self._patience) and self.has_all

    def name(self, version: int, furthest: int, pause: float, now: float) -> bool:
        """Names the next version if it is time to, and returns whether it did. `version`: the chief's slice's; `furthest`: the
        newest that any slice may have reached, as workers say."""
        is_near = version < self.due <= version + ROUNDS_AHEAD
        if not self.is_time(pause, now) or (is_near and not self.is_written):
            return False
        # a worker that says too much must not keep all from snapshots
        self.due = ROUNDS_AHEAD + (max(version, furthest) if self.is_written else version)
        self._named_at = now
        return True

    def soon(self, now: float) -> None:
        """A server has come back: `pause` counts from now on."""
        self._named_at = now

    @property
    def is_known(self) -> bool:
        """Whether every other server knows the named version; until then the chief's slice must not reach it."""
        return all(self._report(server).due >= self.due for server in self._servers[1:])

    @property
    def is_written(self) -> bool:
        """Whether every server has the named version on disk."""
        return all(not self.due or self.due in self._report(server).kept for server in self._servers)

    @property
    def newest(self) -> int | None:
        """The newest version that every server has on disk; None if there is none."""
        kept = [self._report(server).kept for server in self._servers]
        return max(frozenset.intersection(*kept), default=None) if kept else None

    def newest_for(self, known: int) -> int:
        """What a server learns of `newest`, 0 for none. Until all have reported to a restarted chief, that is what the server
        knows: told of none, it would no longer keep that snapshot."""
        return (self.newest or 0) if self.has_all else known

    # going back
    def go_back(self) -> bool:
        """Lets all servers go back to the newest version that each has on disk; returns whether there is one, or they are
        on their way already."""
        if self.is_going_back:
            return True
        self._order_anew()
        return self.is_going_back

    def _order_anew(self) -> None:
        version = self.newest
        if version is None:
            self._done = set(self._servers)
            return
        self.back = GoBack(self.back.number + 1, version)
        self._done = set()
        self.due = 0

    @property
    def is_going_back(self) -> bool:
        """Whether a server has yet to follow the newest order."""
        return self.back.number > 0 and not self._done >= set(self._servers)

    def order(self, server: int) -> GoBack | None:
        """What this server has yet to do."""
        return None if not self.back.number or server in self._done else self.back

    # the chief's disk
    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {"back": [self.back.number, self.back.version, sorted(self._done)]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`; a run of an older release has none."""
        found: Sequence[Any] = state.get("back", (0, 0, ()))
        self.back = GoBack(found[0], found[1])
        self._done = set(found[2])

    def _report(self, server: int) -> Report:
        return self._reports.get(server, Report())

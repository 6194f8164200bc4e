"""Tracks the other servers' reports: which view each follows, and which change of policy it has made."""

from collections.abc import Mapping

from paceline.core.chief.membership import ROUNDS_AHEAD


class OtherServers:
    """Lets the chief wait until all slices know something. The servers report again to a restarted chief, so a snapshot
    holds none of it. Not thread-safe."""

    def __init__(self, servers: int) -> None:
        """`servers`: how many, including the chief's own; 0 in a run without servers."""
        self._numbers = range(1, servers)
        self.terms: dict[int, int] = {}
        self.views: dict[int, int] = {}
        """The newest view that each server follows."""
        self._switches: dict[int, int] = {}
        """The number of each server's last change of policy."""
        self._gone: dict[int, tuple[int, int]] = {}
        """By server a view, and the examples that its slice has of workers that are not in it."""
        self._lacks = 0
        self._unseated: dict[int, tuple[int, Mapping[str, int]]] = {}
        """By server a view, and how far each worker is on its slice that is not in it."""
        self._first_open: dict[int, int] = {}
        """By view that is on its way to them, the first round that the chief's slice keeps open meanwhile."""

    def acknowledged(
        self,
        server: int,
        term: int,
        view: int,
        switch: int,
        gone: int = 0,
        unseated: Mapping[str, int] | None = None,
    ) -> None:
        """A server reports its state. A process's newest report counts; a new process starts over. `gone`: the examples that
        its slice has of workers that are not in the view; `unseated`: how far each of these is on it."""
        self._gone[server] = view, gone
        self._unseated[server] = view, unseated or {}
        if self.terms.get(server) == term:
            view = max(view, self.views[server])
            switch = max(switch, self._switches[server])
        self.terms[server] = term
        self.views[server] = view
        self._switches[server] = switch

    def lacks(self, gone: int, view: int) -> int:
        """How many fewer examples than the chief's slice, which has `gone` of workers that are not in `view`, the slice has
        that has the fewest; what all had said of the view before, until they have said it of this one."""
        if all(self._gone.get(server, (-1, 0))[0] == view for server in self._numbers):
            self._lacks = max((gone - theirs for _, theirs in self._gone.values()), default=0)
        return max(0, self._lacks)

    def marks(self, worker: str, view: int) -> list[int] | None:
        """How far a worker is on each of their slices that is in no view from this one on; None until all have said so."""
        reports = [self._unseated.get(server, (-1, {})) for server in self._numbers]
        if any(theirs < view for theirs, _ in reports):
            return None
        return [unseated.get(worker, 0) for _, unseated in reports]

    def follow(self, view: int) -> bool:
        """Whether all servers have this view or a newer one."""
        return all(self.views.get(server, -1) >= view for server in self._numbers)

    def have_made(self, switch: int) -> bool:
        """Whether all their slices have made this change of policy."""
        return all(self._switches.get(server, 0) >= switch for server in self._numbers)

    def start_of(self, version: int) -> int:
        """Returns the version with which a worker begins that joins now; `version`: of the chief's slice. The open round is the
        last one without it, or the next, if an earlier view keeps the open one open: that waits for one view at most."""
        open_from = self.open_from
        is_held = open_from is not None and open_from <= version + 1
        return version + (ROUNDS_AHEAD if is_held else 1)

    def keep_open(self, view: int, first: int) -> None:
        """A view is on its way, and the chief's slice has to keep rounds from `first` on open meanwhile."""
        self._first_open[view] = min(first, self._first_open.get(view, first))

    @property
    def open_from(self) -> int | None:
        """The first round that the chief's slice keeps open, as a view is on its way; None if it keeps none open."""
        self._first_open = {view: first for view, first in self._first_open.items() if not self.follow(view)}
        return min(self._first_open.values(), default=None)

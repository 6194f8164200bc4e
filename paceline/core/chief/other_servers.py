"""Tracks the other servers' reports: which view each follows, and which change of policy it has made."""

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

    def acknowledged(self, server: int, term: int, view: int, switch: int, gone: int = 0) -> None:
        """A server reports its state. A process's newest report counts; a new process starts over. `gone`: the examples that
        its slice has of workers that are not in the view."""
        self._gone[server] = view, gone
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

    def follow(self, view: int) -> bool:
        """Whether all servers have this view or a newer one."""
        return all(self.views.get(server, -1) >= view for server in self._numbers)

    def have_made(self, switch: int) -> bool:
        """Whether all their slices have made this change of policy."""
        return all(self._switches.get(server, 0) >= switch for server in self._numbers)

    def open_from(self, version: int) -> int | None:
        """The first round that the chief's slice, at this version, keeps open until all servers have a new view; None if
        there is no server to wait for."""
        return version + ROUNDS_AHEAD if self._numbers else None

"""Tracks the other servers' reports: which view each follows, and which change of policy it has made."""

from paceline.core.run.membership import ROUNDS_AHEAD


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

    def acknowledged(self, server: int, term: int, view: int, switch: int) -> None:
        """A server reports its state. A process's newest report counts; a new process starts over."""
        if self.terms.get(server) == term:
            view = max(view, self.views[server])
            switch = max(switch, self._switches[server])
        self.terms[server] = term
        self.views[server] = view
        self._switches[server] = switch

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

"""What the servers beside the chief's have said: which view each one follows, and which change of policy it has made."""

from paceline.core.run.membership import ROUNDS_AHEAD


class OtherServers:
    """The chief waits for them where all slices have to know something. A restarted chief hears them anew, so nothing of
    it is in a snapshot. Not thread-safe."""

    def __init__(self, servers: int) -> None:
        """`servers`: with the chief's own; 0 in a run without."""
        self._numbers = range(1, servers)
        self.terms: dict[int, int] = {}
        self.views: dict[int, int] = {}
        """Newest view that each of them follows."""
        self._switches: dict[int, int] = {}
        """Number of the change of policy that each of them has made last."""

    def acknowledged(self, server: int, term: int, view: int, switch: int) -> None:
        """A server says where it is. Of one process the newest counts; a new process has begun anew."""
        if self.terms.get(server) == term:
            view = max(view, self.views[server])
            switch = max(switch, self._switches[server])
        self.terms[server] = term
        self.views[server] = view
        self._switches[server] = switch

    def follow(self, view: int) -> bool:
        """Whether all of them have this view, or a newer one."""
        return all(self.views.get(server, -1) >= view for server in self._numbers)

    def have_made(self, switch: int) -> bool:
        """Whether all of their slices have made this change of policy."""
        return all(self._switches.get(server, 0) >= switch for server in self._numbers)

    def open_from(self, version: int) -> int | None:
        """The round from which on rounds of the chief's slice, which is at this version, stay open until all have a new view;
        None where there is nobody to wait for."""
        return version + ROUNDS_AHEAD if self._numbers else None

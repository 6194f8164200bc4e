"""Notices that a run has no worker on any machine, says so, and ends it when none has come for too long."""

from paceline.core.errors import ServersGone

SAID_EVERY = 60.0
"""Seconds between two words on it."""


class NobodyThere:
    """Fed at every look; time (seconds on any steady clock) is handed in."""

    def __init__(self, limit: float, command: str) -> None:
        """`limit`: `start_timeout`; `command`: what people type on another machine."""
        self._limit = limit
        self._command = command
        self._since: float | None = None
        self._said = 0.0
        self._there = False
        """Whether there was ever a worker."""

    def check(self, is_there: bool, now: float) -> str | None:
        """What to tell people, if it is time to. `is_there`: whether any worker runs. ServersGone: nobody has come for too
        long."""
        if is_there:
            self._since, self._there = None, True
            return None
        if self._since is None:
            self._since = self._said = now
            return self._waits(0) if self._there else None
        waited = now - self._since
        if waited >= self._limit:
            raise ServersGone(
                f"{self._what} for {waited:.0f} s (start_timeout), so the run has ended. To resume it from its "
                "last snapshot, repeat its command with --run NAME, and join it again. To wait longer, add --set "
                "start_timeout=SECONDS."
            )
        if now - self._said < SAID_EVERY:
            return None
        self._said = now
        return self._waits(waited)

    def waits(self) -> str:
        """What the run waits for now; '' while there is somebody."""
        return "" if self._since is None else f"{self._what}; it waits {self._limit:.0f} s for one (start_timeout)"

    @property
    def _what(self) -> str:
        return f"no machine {'is left that' if self._there else 'has come that'} lends workers to this run"

    def _waits(self, waited: float) -> str:
        since = f" for {waited:.0f} s" if waited else ""
        left = self._limit - waited
        return f"{self._what}{since}; it waits another {left:.0f} s for one: {self._command}"

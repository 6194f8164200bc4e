"""The training time of a run, as a process knows it that hears from the chief now and then."""


class RunClock:
    """Goes on between the chief's answers, and while the chief is away; never goes back. Not thread-safe."""

    def __init__(self) -> None:
        self._run: float | None = None
        self._heard = 0.0
        self._told: float | None = None
        """What the chief said last."""
        self._goes = False

    def hear(self, seconds: float | None, now: float) -> None:
        """`seconds`: of the run as the chief says; None where it does not answer. `now`: on any steady clock."""
        if seconds is None:
            return
        self._run = max(seconds, self.read(now))
        self._goes = self._told is not None and seconds != self._told
        self._heard, self._told = now, seconds

    def read(self, now: float) -> float:
        """The run's seconds; -1 before the chief has said anything."""
        if self._run is None:
            return -1.0
        return self._run + (now - self._heard if self._goes else 0.0)

"""A live training's scheduler, which follows the run: a worker that is started again finds the rate where it was."""

from typing import Any


class Schedule:
    """Not thread-safe."""

    def __init__(self, scheduler: Any) -> None:
        """None: the rate stays."""
        self._scheduler = scheduler
        self._done = 0

    def reach(self, count: int) -> None:
        """Steps until it has been stepped `count` times; does nothing if it has been."""
        while self._scheduler is not None and self._done < count:
            self._scheduler.step()
            self._done += 1

"""What a script speaks to that was started without a launcher: it trains alone, as plain torch."""

from collections.abc import Callable, Iterator
from typing import Any

from paceline.core.run.best_model import Measure
from paceline.worker.script.named_scores import named


class Alone:
    """One process, no servers. Has the shape of ScriptRun."""

    is_alone = True
    rank = 0
    workers = 1
    seed = 0
    is_over = False

    def __init__(self) -> None:
        self._evaluate: Callable[[], Any] | None = None
        self._every = 1
        self._best: Measure | None = None
        self._has_told = False

    def evaluate(self, function: Callable[[], Any], every: int, best: str | None, patience: int | None) -> None:
        """What scores the model after every so many epochs. No model is kept, and nothing stops early: that is the run's."""
        self._evaluate = function
        self._every = every
        self._best = None if best is None else Measure.parse(best, "paceline.evaluate: best")

    def epochs(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`; scores come after an epoch."""
        return self._counted(count, "epoch")

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`."""
        return self._counted(count, "step")

    def _counted(self, count: int, what: str) -> Iterator[int]:
        for number in range(count):
            yield number
            is_due = (number + 1) % self._every == 0 or number + 1 == count
            if self._evaluate is not None and is_due:
                found, line = named(self._evaluate(), self._evaluate, self._best)
                if line and not self._has_told:
                    print(line, flush=True)
                    self._has_told = True
                scores = ", ".join(f"{name} {float(value):.4g}" for name, value in found.items())
                print(f"{what} {number + 1} of {count}: {scores}", flush=True)

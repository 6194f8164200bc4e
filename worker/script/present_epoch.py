"""What a script does with the mini-batches of one epoch: whether it steps with each."""

from paceline.core.errors import ConfigError


class PresentEpoch:
    """The mini-batches of a script's present pass over its loader, by their positions. Not thread-safe."""

    def __init__(self, accumulate: int = 1) -> None:
        """`accumulate`: mini-batches of the script for each step."""
        self._accumulate = accumulate
        self._began = 0
        self.end = 0
        """Position of its last step; 0: it has not begun."""
        self._drawn = 0
        self._has_drawn_all = False

    def begin(self, position: int, steps: int) -> None:
        """After this position, for so many steps; that of a worker that has just joined ends where the others' does."""
        self.end = position + steps - (0 if self.end else position % steps)
        self._began = position
        self._drawn, self._has_drawn_all = 0, False

    def drew(self) -> None:
        """The script gets its next mini-batch, or the next part of one."""
        self._drawn += 1

    def drew_all(self) -> None:
        """The script has had all mini-batches of the epoch."""
        self._has_drawn_all = True

    def check_step(self, position: int) -> None:
        """ConfigError where a step comes after this position and the mini-batches for it have not."""
        made = position - self._began
        if self._accumulate > 1 and self._drawn and made * self._accumulate >= self._drawn:
            raise ConfigError(
                f"optimizer.step() came {made + 1} times for {self._drawn} mini-batches, where each step is on "
                f"{self._accumulate}, as paceline.wrap was told. Call it once for each {self.mini_batches}."
            )

    def missing(self, position: int, lacking: int) -> int:
        """Steps that lack after this position at the end of an epoch that was drawn wholly, of those that could. ConfigError
        where most do."""
        if not self._has_drawn_all or not lacking:
            return 0
        made = position - self._began
        if made <= lacking:
            raise ConfigError(
                f"optimizer.step() was called {made} times in an epoch of {made + lacking} steps. Call it once for each "
                f"{self.mini_batches}; where gradients are added up over several, say over how many: "
                "paceline.wrap(optimizer, model, accumulate=4)."
            )
        return lacking

    @property
    def mini_batches(self) -> str:
        """Those of a step, in words."""
        return "mini-batch" if self._accumulate == 1 else f"{self._accumulate} mini-batches"

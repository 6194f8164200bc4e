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
        """Begins an epoch after this position, of `steps` steps; that of a worker that has just joined ends where the others'
        does."""
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
                f"optimizer.step() came {made + 1} times for {self._drawn} mini-batches, but "
                f"accumulate={self._accumulate} in paceline.wrap. Call it once for each {self.mini_batches}."
            )

    def missing(self, position: int, lacking: int) -> int:
        """The steps missing after this position at the end of an epoch whose mini-batches were all drawn.
        Raises ConfigError if most are missing."""
        if not self._has_drawn_all or not lacking:
            return 0
        made = position - self._began
        if made <= lacking:
            raise ConfigError(
                f"optimizer.step() was called {made} times in an epoch of {made + lacking} steps. Call it once "
                f"for each {self.mini_batches}. If you add up the gradients of several mini-batches, say how "
                "many: paceline.wrap(optimizer, model, accumulate=4)."
            )
        return lacking

    @property
    def mini_batches(self) -> str:
        """Those of a step, in words."""
        return "mini-batch" if self._accumulate == 1 else f"{self._accumulate} mini-batches"


def beyond_own(name: str, made: int, own: int, policy: str) -> str:
    """What to say of an error in the steps that a fast worker makes beyond its own."""
    return (
        f"paceline: {name} has made {made:,} steps, and its own were {own:,}: by {policy} a fast worker takes over what slow "
        "ones have not done. With --set budget=per_worker it ends after its own."
    )

"""What a script speaks to that was started without a launcher: it trains alone, as plain torch."""

from collections.abc import Iterator
from typing import Any

from paceline.worker.script.asked_scores import AskedScores, kept_modes, named


class Alone:
    """One process, no servers. Has the shape of ScriptRun."""

    is_alone = True
    rank = 0
    workers = 1
    seed = 0
    is_over = False

    def __init__(self) -> None:
        self._asked: AskedScores | None = None
        self._has_told = False
        self.model: Any = None
        """The one that is trained; scoring leaves it in its mode."""

    def evaluate(self, asked: AskedScores) -> None:
        """Sets what scores the model after every `every` epochs. Keeps no model and stops nothing early: only a run does."""
        self._asked = asked

    def epochs(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`; scores come after an epoch."""
        return self._counted(count, "epoch")

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, ... below `count`."""
        return self._counted(count, "step")

    def _counted(self, count: int, what: str) -> Iterator[int]:
        for number in range(count):
            yield number
            asked = self._asked
            if asked is not None and ((number + 1) % asked.every == 0 or number + 1 == count):
                with kept_modes(self.model):
                    result = asked.function()
                found, line = named(result, asked.function, asked.best)
                if line and not self._has_told:
                    print(line, flush=True)
                    self._has_told = True
                scores = ", ".join(f"{name} {float(value):.4g}" for name, value in found.items())
                print(f"{what} {number + 1} of {count}: {scores}", flush=True)


def clip_steps(optimizer: Any, norm: float) -> None:
    """Has each step clip its gradients first, as a run does."""
    from torch.nn.utils import clip_grad_norm_

    def clip() -> None:
        clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], norm)

    def before(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        closure = args[1] if len(args) > 1 else options.get("closure")
        if closure is None:
            clip()
            return None

        def clipped() -> Any:
            loss = closure()
            clip()
            return loss

        return (args[0], clipped), {}

    optimizer.register_step_pre_hook(before)

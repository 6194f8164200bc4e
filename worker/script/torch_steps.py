"""Own steps of a worker, taken by the script's torch optimizer itself."""

from collections.abc import Callable, Sequence

from torch.optim import Optimizer

from paceline.core.values import Vector


class TorchSteps:
    """Replaces the optimizer that a worker steps its local model with. Belongs to the loop's thread, which goes on only
    while the script waits."""

    def __init__(self, optimizer: Optimizer, lr: float, after: Callable[[], None]) -> None:
        """`lr`: the rate that the script has described; `after` brings what was stepped to the flat model."""
        self._optimizer = optimizer
        self._lr = lr
        self._after = after

    def new_slots(self, length: int) -> list[Vector]:
        """None: torch's optimizer keeps its state itself."""
        return []

    def step(
        self,
        weights: Vector,
        out: Vector,
        gradient: Vector,
        scale: float,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        """One step of the model that the script has, at its groups' rates times what the run makes of them."""
        groups, factor = self._optimizer.param_groups, lr / self._lr
        rates = [group["lr"] for group in groups] if factor != 1 else []
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = rate * factor
        try:
            self._optimizer.step()
        finally:
            for group, rate in zip(groups, rates, strict=False):
                group["lr"] = rate
        self._after()

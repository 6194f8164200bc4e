"""AdamW: Adam whose weight decay doesn't pass through the division."""

from typing import Self

from pydantic import Field

from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.optimizer import Decay


class AdamW(Adam):
    """Loshchilov and Hutter 2019, the update of torch.optim.AdamW: w <- w - lr * weight_decay * w, then Adam's step on
    the gradient alone."""

    weight_decay: Decay = Field(0.01, description="Pull towards zero: lr times this times the weight is taken from it.")

    def decayed(self, share: float) -> Self:
        return self.model_copy(update={"weight_decay": self.weight_decay * share})

    @property
    def server_decay(self) -> float:
        return self.weight_decay

    def _pulls(self, lr: float) -> tuple[float, float]:
        return 0.0, 1 - lr * self.weight_decay

"""AdamW: Adam whose weight decay doesn't pass through the division."""

from pydantic import Field

from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.optimizer import Decay


class AdamW(Adam):
    """Loshchilov and Hutter 2019, the update of torch.optim.AdamW: w <- w - lr * weight_decay * w, then Adam's step on
    the gradient alone."""

    weight_decay: Decay = Field(0.01, description="Pull towards zero: lr times this times the weight is taken from it.")

    def _pulls(self, lr: float) -> tuple[float, float]:
        return 0.0, 1 - lr * self.weight_decay

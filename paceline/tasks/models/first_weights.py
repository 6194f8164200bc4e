"""First weights that deep ReLU networks train from."""

from torch import nn


def start_convolutions(model: nn.Module) -> None:
    """He et al. 2015b, eq. 10, for all convolutions: normal with deviation sqrt(2 / fan out), biases 0."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)

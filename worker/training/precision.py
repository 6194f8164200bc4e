"""The number format that a worker computes in; weights and gradients stay float32."""

import torch

from paceline.core.errors import ConfigError

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST = 65536.0
_GROWS_AFTER = 2000
"""Steps. Both numbers are those of torch.amp.GradScaler, which can't be had without an optimizer in this process."""


class Precision:
    """Autocast, and for fp16 the factor on the loss that keeps small gradients from vanishing. ConfigError where the device
    can't compute in this format."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._device = device.type
        self._dtype = _TYPES.get(name)
        if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise ConfigError(
                f"{torch.cuda.get_device_name(device)} can't compute in bf16; use precision fp16 or float32."
            )
        self.scale = _FIRST if name == "fp16" else 1.0
        self._good = 0

    def autocast(self) -> torch.autocast:
        """To compute the loss in."""
        return torch.autocast(self._device, self._dtype, enabled=self._dtype is not None)

    def note(self, is_finite: bool) -> None:
        """Whether the gradient of a finite loss was finite with the present factor: halves it, or doubles it after 2,000
        steps that were."""
        if self._dtype is not torch.float16:
            return
        self._good = self._good + 1 if is_finite else 0
        if not is_finite:
            self.scale = max(1.0, self.scale / 2)
        elif self._good % _GROWS_AFTER == 0:
            self.scale *= 2

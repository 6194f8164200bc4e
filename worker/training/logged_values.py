"""What a training script logs with `paceline.log`, until a heartbeat sends it."""

import re
import threading
from collections.abc import Mapping
from typing import Any

from paceline.core.errors import ConfigError

MOST = 64
"""Names of one worker: each is a field of every heartbeat, and a series for Prometheus."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")


class LoggedValues:
    """The newest value of each name. Thread-safe; tensors on a GPU are kept as they are, until `read`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float | _OnGpu] = {}
        self._left_out: set[str] = set()

    def note(self, values: Mapping[str, object]) -> None:
        """Takes them down. ConfigError: a name or a value that can't be shown; none of them is taken then."""
        taken = {name: _value(name, value) for name, value in values.items()}
        with self._lock:
            for name, value in taken.items():
                if name in self._values or len(self._values) < MOST:
                    self._values[name] = value
                elif len(self._left_out) < MOST:
                    self._left_out.add(name)

    def read(self) -> dict[str, float]:
        """The newest ones; waits for a GPU that still computes them."""
        with self._lock:
            values = dict(self._values)
        return {name: _read(value) for name, value in values.items()}

    def loss(self) -> float | None:
        """The newest one called loss."""
        with self._lock:
            value = self._values.get("loss")
        return None if value is None else _read(value)

    @property
    def left_out(self) -> int:
        """Names that were too many, as far as they are counted."""
        return len(self._left_out)


LOGGED = LoggedValues()
"""This process's, as sys.modules is: a script logs where it likes, before it has a run and after."""


class _OnGpu:
    """A number that a GPU may still have to compute."""

    def __init__(self, value: Any) -> None:
        from torch import cuda

        self._value = value.detach().clone()  # the script may write into it before it is read
        with cuda.device(value.device):
            self._computed = cuda.current_stream().record_event()

    def read(self) -> float:
        """Waits for the tensor: the reading thread uses another CUDA stream, which does not wait by itself."""
        self._computed.synchronize()
        return float(self._value)


def _value(name: str, value: Any) -> "float | _OnGpu":
    """A float; or a number on a GPU, which is not waited for here."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"log() got the name {name!r}; expected up to 64 letters, digits, '_', '.', '-' and '/', beginning "
            "with a letter, like 'loss' or 'grad_norm/encoder'."
        )
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        if getattr(value, "is_cuda", False) and value.numel() == 1:
            return _OnGpu(value)
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise ConfigError(
            f"log({name}=...) got a {type(value).__name__}{shape}; expected a number, or a tensor or array with "
            "one element. Reduce it first, for example with mean()."
        ) from error


def _read(value: "float | _OnGpu") -> float:
    return value.read() if isinstance(value, _OnGpu) else value

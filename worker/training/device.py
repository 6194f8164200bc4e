"""Where a worker computes, and how values come there and back."""

import os
import shutil

import torch
from torch import Tensor

from paceline.core.errors import ConfigError


def choose_device(name: str, rank: int = 0) -> torch.device:
    """The device of that name; 'auto' deals the GPUs seen here out by rank, so that workers share one where there are too
    few, and is the CPU where there is none. It becomes the thread's own, so that no other GPU holds memory for it."""
    if name == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        name = f"cuda:{rank % count}" if count else "cpu"
    device = _named(name)
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise ConfigError(
            f"Device '{name}' can't be used here, which has {torch.cuda.device_count()} CUDA devices. Use cpu or auto."
        )
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"Device '{name}' was asked for, but torch finds no CUDA device here. Use cpu or auto.")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device


def device_of_script(name: str, rank: int = 0) -> torch.device:
    """Where a process computes that sees no GPU but the one that `name` means: as `cuda`, whatever its number is. ConfigError
    where it sees none."""
    kind = name if name == "auto" else _named(name).type
    try:
        return choose_device(kind, rank)
    except ConfigError as error:
        raise ConfigError(str(error).replace("'cuda'", f"'{name}'")) from error


def _named(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}'; use cpu, cuda, cuda:1 or auto.") from error


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device; to a GPU from pinned memory, so that the copy goes on while this thread does."""
    if device.type == "cpu" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_host(tensor: Tensor) -> Tensor:
    """The tensor itself if it is in main memory, otherwise a pinned copy."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, pin_memory=True).copy_(tensor)


def check_compiler() -> None:
    """ConfigError where torch.compile has no compiler to work with."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ConfigError(
            f"compile: true needs a C++ compiler, and '{compiler}' is not installed here. Install one (apt-get "
            "install g++), name it in the environment variable CXX, or leave out compile."
        )

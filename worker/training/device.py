"""Where a worker computes and in which number format, and how values come there and back."""

import os
import re
import shutil
from collections.abc import Callable

import torch
from prometheus_client import CollectorRegistry, Gauge
from torch import Tensor

from paceline.core.errors import ConfigError

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST = 65536.0
_GROWS_AFTER = 2000
"""Steps. Both numbers are those of torch.amp.GradScaler, which can't be had without an optimizer in this process."""


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
            raise ConfigError(
                f"Device '{name}' was asked for, but torch finds no CUDA device here: {_why_no_cuda()} Or use cpu or auto."
            )
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device


def seed_torch(seed: int) -> None:
    """As torch.manual_seed, for what a step draws: that one takes 0.6 ms each time for GPUs that nobody uses yet."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def device_of_script(name: str, rank: int = 0) -> torch.device:
    """Where a process computes that sees no GPU but the one that `name` means: as `cuda`, whatever its number is. ConfigError
    where it sees none."""
    kind = name if name == "auto" else _named(name).type
    try:
        return choose_device(kind, rank)
    except ConfigError as error:
        raise ConfigError(str(error).replace("'cuda'", f"'{name}'")) from error


def tell_device(device: torch.device, say: Callable[..., None], registry: CollectorRegistry) -> None:
    """Logs what a worker computes on, and with which torch, and keeps it as a metric."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    facts = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    say("computes", on=str(device), **facts)
    Gauge("paceline_worker_device", "1 for what the worker computes on", [*facts], registry=registry).labels(
        **facts
    ).set(1)


def _why_no_cuda() -> str:
    """In words, with what to do about it."""
    wanted = torch.version.cuda
    if wanted is None:
        return f"torch {torch.__version__} has no CUDA. Install one that has it (docs/run/laptop.md#gpus)."
    said = ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        said = str(error).split(". ")[0]
    if found := re.search(r"too old \(found version (\d+)", said):
        highest = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
        return (
            f"the NVIDIA driver here can do CUDA {highest} at most, and torch {torch.__version__} needs {wanted}. Update the "
            "driver, or install a torch for an older CUDA (docs/run/laptop.md#an-older-driver)."
        )
    if "no NVIDIA driver" in said:
        return (
            "there is no NVIDIA driver. Is this a machine with a GPU? On Kubernetes: does its node offer nvidia.com/gpu, and "
            "does the pod request it (component gpu)?"
        )
    return f"torch says '{said or 'no CUDA GPUs are available'}'. See nvidia-smi, and check CUDA_VISIBLE_DEVICES."


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

"""Who is measured, and in which shapes: the entries of the standard run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.errors import UsageError

RESNET_50, LARGE = 23_500_000, 138_000_000
"""Model sizes of the standard run and of `--large` (float32 values)."""


@dataclass(frozen=True)
class Shape:
    """How much is trained by how many."""

    elements: int
    workers: int
    servers: int

    def __str__(self) -> str:
        return f"W{self.workers}S{self.servers}"


@dataclass(frozen=True)
class Contender:
    """A program that runs its own processes; `--elements --workers --servers --iterations` are added to the command."""

    name: str
    command: tuple[str, ...]
    """Arguments of the environment's Python."""
    environment: str = "project"


@dataclass(frozen=True)
class Entry:
    """One contender in one shape: a row of the table."""

    contender: Contender
    shape: Shape

    @property
    def key(self) -> tuple[str, int, int]:
        """What the targets name it by: contender, workers, servers."""
        return self.contender.name, self.shape.workers, self.shape.servers


def _peer(name: str, module: str, *options: str, environment: str = "project") -> Contender:
    return Contender(name, ("-m", f"benchmarks.peers.{module}", *options), environment)


# paceline-...: by grpcio; lane-...: on the lane
CONTENDERS = {
    contender.name: contender
    for contender in (
        _peer("paceline-asp", "paceline", "--policy", "asp", "--codec", "none"),
        _peer("paceline-asp-fp16", "paceline", "--policy", "asp", "--codec", "fp16"),
        _peer("paceline-asp-bf16", "paceline", "--policy", "asp", "--codec", "bf16"),
        _peer("paceline-bsp", "paceline", "--policy", "bsp", "--codec", "none"),
        _peer("lane-asp", "paceline", "--transport", "lane", "--policy", "asp"),
        _peer("paceline-asp-tls", "paceline", "--policy", "asp", "--codec", "none", "--tls"),
        _peer("lane-asp-tls", "paceline", "--transport", "lane", "--policy", "asp", "--tls"),
        _peer("lane-asp-fp16", "paceline", "--transport", "lane", "--policy", "asp", "--codec", "fp16"),
        _peer("lane-asp-bf16", "paceline", "--transport", "lane", "--policy", "asp", "--codec", "bf16"),
        _peer("lane-asp-retained", "paceline", "--transport", "lane", "--retain", "400000000"),
        _peer("lane-asp-bf16-retained", "paceline", "--transport", "lane", "--codec", "bf16", "--retain", "400000000"),
        _peer("lane-bsp", "paceline", "--transport", "lane", "--policy", "bsp"),
        _peer("lane-bsp-bf16", "paceline", "--transport", "lane", "--policy", "bsp", "--codec", "bf16"),
        _peer("lane-allreduce", "paceline_allreduce"),
        _peer("lane-allreduce-bf16", "paceline_allreduce", "--codec", "bf16"),
        _peer("tutorial-grpc", "tutorial_grpc"),
        _peer("torch-rpc", "torch_rpc"),
        _peer("tensorflow-ps", "tensorflow_ps", environment="tensorflow"),
        _peer("ray", "ray_ps", environment="ray"),
        _peer("gloo", "gloo"),
    )
}

_STANDARD: tuple[tuple[int, int, str], ...] = (
    (1, 1, "paceline-asp paceline-asp-fp16 paceline-asp-bf16 lane-asp tutorial-grpc torch-rpc ray tensorflow-ps"),
    (1, 1, "lane-asp-fp16 lane-asp-bf16 lane-asp-retained lane-asp-bf16-retained paceline-asp-tls lane-asp-tls"),
    (2, 1, "paceline-asp paceline-bsp lane-asp lane-bsp torch-rpc ray gloo lane-allreduce lane-allreduce-bf16"),
    (2, 2, "paceline-asp paceline-bsp lane-bsp torch-rpc ray"),
    (2, 4, "paceline-asp"),
    (4, 2, "paceline-asp paceline-bsp lane-asp lane-bsp lane-bsp-bf16 torch-rpc ray"),
    (4, 4, "paceline-asp"),
    (4, 1, "gloo lane-allreduce lane-allreduce-bf16"),
)
_LARGE: tuple[tuple[int, int, str], ...] = (
    (1, 1, "paceline-asp lane-asp tutorial-grpc torch-rpc tensorflow-ps"),
    (2, 1, "paceline-asp paceline-bsp lane-bsp torch-rpc gloo"),
    (4, 2, "lane-bsp lane-bsp-bf16 torch-rpc"),
    (4, 1, "gloo"),
)


def suite(
    elements: int = RESNET_50, *, large: bool = False, only: Sequence[str] = (), shapes: Sequence[str] = ()
) -> list[Entry]:
    """The entries to run; `only` names contenders and `shapes` shapes like W1S1 to keep. UsageError for a typo."""
    _check(only, shapes)
    entries = [
        Entry(CONTENDERS[name], Shape(elements, workers, servers))
        for workers, servers, names in (_LARGE if large else _STANDARD)
        for name in names.split()
        if (not only or name in only) and (not shapes or str(Shape(elements, workers, servers)) in shapes)
    ]
    if not entries:
        raise UsageError(
            f"Nothing to run: none of {', '.join(only)} is measured in {', '.join(shapes)}; leave one of them out."
        )
    return entries


def _check(only: Sequence[str], shapes: Sequence[str]) -> None:
    for name in only:
        if name not in CONTENDERS:
            raise UsageError(f"There is no contender '{name}'; known are {', '.join(CONTENDERS)}.")
    for shape in shapes:
        if not re.fullmatch(r"W[1-9][0-9]*S[1-9][0-9]*", shape):
            raise UsageError(f"Can't read the shape '{shape}'; write workers and servers like W2S1.")

"""How far the compiled loops are from a copy of memory (targets 7 and 8). Run: python -m benchmarks.kernels [N]"""

import sys
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from paceline.core import kernels
from paceline.core.optimizers import optimizer_loops as loops
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.adamw import AdamW
from paceline.core.values import Vector

ELEMENTS = 23_500_000
"""float32 values of ResNet-50: 94 MB."""
ROUNDS = 15
"""Times that every loop runs; all take turns, so that a slow moment of the machine meets them alike."""


class Row(NamedTuple):
    """One ratio (lower is better), and the target it must meet and should meet; None where it only serves to compare."""

    measure: str
    value: float
    must: float | None
    goal: float | None


def kernel_rows(n: int = ELEMENTS) -> list[Row]:
    """Targets 7 and 8 at `n` float32 values on one thread. Needs memory for 11 arrays of them."""
    seconds = interleaved(_loops(n))

    def ratio(measured: str, copies: int = 1, against: str = "memcpy") -> float:
        sums = [sum(times) for times in zip(*(seconds[name] for name in measured.split(" + ")), strict=True)]
        return float(median(time / (copies * base) for time, base in zip(sums, seconds[against], strict=True)))

    rows = [
        Row("7 SGD fold in place / memcpy", ratio("sgd"), 1.5, 1.3),
        Row("  SGD fold to another array / memcpy", ratio("sgd_out"), None, None),
        Row("8 fp16 encode + decode / memcpy of each", ratio("fp16_encode + fp16_decode", 2), 2.0, 1.3),
        Row("8 bf16 encode + decode / memcpy of each", ratio("bf16_encode + bf16_decode", 2), 2.0, 1.3),
        Row("  fp16 encode + decode / one memcpy", ratio("fp16_encode + fp16_decode"), None, None),
        Row("  bf16 encode + decode / one memcpy", ratio("bf16_encode + bf16_decode"), None, None),
        Row("  screening for NaN and infinity / memcpy", ratio("all_finite"), None, None),
    ]
    if "torch_sgd" in seconds:
        rows[1:1] = [
            Row("7 Adam fold in place / torch fused Adam", ratio("adam", against="torch_adam"), 1.3, 1.0),
            Row("7 AdamW fold in place / torch fused AdamW", ratio("adamw", against="torch_adamw"), 1.3, 1.0),
            Row("  SGD fold in place / torch fused SGD", ratio("sgd", against="torch_sgd"), None, None),
        ]
    return rows


def _loops(n: int) -> dict[str, Callable[[], object]]:
    random = np.random.default_rng(0)
    weights, gradient, slot, out = (random.standard_normal(n, dtype=np.float32) for _ in range(4))
    square = np.ones(n, np.float32)
    fp16, bf16 = np.zeros(n, np.uint16), np.zeros(n, np.uint16)
    calls: dict[str, Callable[[], object]] = {
        "memcpy": lambda: np.copyto(out, gradient),
        "sgd": lambda: loops.sgd(weights, weights, gradient, slot, 0.5, 1e-6, 0.9, 1e-4, False),
        "sgd_out": lambda: loops.sgd(weights, out, gradient, slot, 0.5, 1e-6, 0.9, 1e-4, False),
        "adam": lambda: Adam(weight_decay=1e-4).step(weights, weights, gradient, 0.5, 1e-6, [slot, square], 9),
        "adamw": lambda: AdamW(weight_decay=1e-4).step(weights, weights, gradient, 0.5, 1e-6, [slot, square], 9),
        "fp16_encode": lambda: kernels.encode_fp16(gradient, fp16),
        "fp16_decode": lambda: kernels.decode_fp16(fp16, out),
        "bf16_encode": lambda: kernels.encode_bf16(gradient, bf16),
        "bf16_decode": lambda: kernels.decode_bf16(bf16, out),
        "all_finite": lambda: kernels.all_finite(gradient),
    }
    try:
        calls |= _torch_steps(weights, gradient)
    except ImportError:
        print("torch is not installed: no comparison with its fused optimizers", file=sys.stderr)
    return calls


def _torch_steps(weights: Vector, gradient: Vector) -> dict[str, Callable[[], object]]:
    """The same steps by torch, on the same arrays."""
    import torch

    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.from_numpy(weights))
    parameter.grad = torch.from_numpy(gradient)
    options: dict[str, Any] = {"lr": 1e-6, "weight_decay": 1e-4, "fused": True}
    return {
        "torch_sgd": torch.optim.SGD([parameter], momentum=0.9, **options).step,
        "torch_adam": torch.optim.Adam([parameter], **options).step,
        "torch_adamw": torch.optim.AdamW([parameter], **options).step,
    }


def interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each loop, round by round, without a first round that touches the memory."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, loop in calls.items():
            start = perf_counter()
            loop()
            seconds[name].append(perf_counter() - start)
    return {name: times[1:] for name, times in seconds.items()}


def show(rows: Iterable[Row], width: int = 7) -> None:
    """Prints ratios next to what they must be, in columns this wide."""
    print(f"{'ratio':44}" + "".join(f"{name:>{width}}" for name in ("value", "must", "goal")))
    for row in rows:
        figures = (row.value, row.must, row.goal)
        print(f"{row.measure:44}" + "".join(f"{'' if one is None else f'{one:.2f}':>{width}}" for one in figures))


def main() -> None:
    """Prints the ratios of one run."""
    show(kernel_rows(int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS))


if __name__ == "__main__":
    main()

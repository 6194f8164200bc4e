"""Compiles the core's loops over every weight: one pass over memory where numpy makes several, on one thread."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

import numpy.typing as npt
from numba import njit, types

from paceline.core.errors import BadPush

F = TypeVar("F", bound=Callable[..., Any])

scalar, nothing = types.float32, types.void
floats = types.Array(types.float32, 1, "C", readonly=True, aligned=False)
floats_out = types.Array(types.float32, 1, "C", aligned=False)
words = types.Array(types.uint32, 1, "C", readonly=True, aligned=False)
words_out = types.Array(types.uint32, 1, "C", aligned=False)


def inner_kernel(signature: Any, reorders: bool = False) -> Callable[[F], F]:
    """Compiles for exactly these types, or loads cached machine code. The loop releases the GIL and checks no index:
    call `check_lengths` first. Other kernels may call it. `reorders`: the compiler may add in any order, which makes sums
    several times as fast; their last bits then depend on the processor."""
    free = {"reassoc"} if reorders else False
    return cast(Callable[[F], F], njit(signature, cache=True, nogil=True, error_model="numpy", fastmath=free))


def kernel(signature: Any, reorders: bool = False) -> Callable[[F], F]:
    """As `inner_kernel`, but loads at the first call: a process needs only a few of the loops, and each takes 20 ms to load."""

    def later(function: F) -> F:
        @cache
        def compiled() -> F:
            return inner_kernel(signature, reorders)(function)

        @wraps(function)
        def call(*values: Any) -> Any:
            return compiled()(*values)

        call.load = compiled  # type: ignore[attr-defined]  # to load it before the first call
        return cast(F, call)

    return later


def check_lengths(*arrays: npt.NDArray[Any]) -> None:
    """Refuses arrays of different lengths: compiled loops would read past the shorter one."""
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise BadPush(f"Arrays of {', '.join(f'{n:,}' for n in lengths)} values can't be combined; pass equal lengths.")

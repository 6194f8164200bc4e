"""How the core's loops over every weight are compiled: one pass over memory where numpy makes several, on one thread."""

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
    """Compiles for exactly these types, or takes the machine code of an earlier time. Such a loop releases the GIL and
    checks no index: call `check_lengths` first. Other kernels may call it. `reorders`: may add up in any order, which makes
    sums several times as fast and their last bits the processor's own."""
    free = {"reassoc"} if reorders else False
    return cast(Callable[[F], F], njit(signature, cache=True, nogil=True, error_model="numpy", fastmath=free))


def kernel(signature: Any, reorders: bool = False) -> Callable[[F], F]:
    """As `inner_kernel`, but at the first call: a process needs few of all loops, and each takes 20 ms to load."""

    def later(function: F) -> F:
        @cache
        def compiled() -> F:
            return inner_kernel(signature, reorders)(function)

        @wraps(function)
        def call(*values: Any) -> Any:
            return compiled()(*values)

        call.load = compiled  # type: ignore[attr-defined]  # ahead of the first call
        return cast(F, call)

    return later


def check_lengths(*arrays: npt.NDArray[Any]) -> None:
    """Refuses arrays of different lengths: compiled loops would read past the shorter one."""
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise BadPush(f"Arrays of {', '.join(f'{n:,}' for n in lengths)} values can't be combined; pass equal lengths.")

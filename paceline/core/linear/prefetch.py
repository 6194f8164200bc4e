"""Asks the processor for memory that a compiled loop will soon read."""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    """The type of such a call, and what writes its code."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        read, keep, in_data_cache = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [place, read, keep, in_data_cache])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""In a compiled loop, prefetch(array, index): begins to load the cache line of array[index] and waits for nothing. Of use
where a loop jumps about in memory, as over rows in random order: the processor can't guess where it will go next."""

"""How glibc's malloc is set for big messages: for children by their environment, for a process by itself. Light, since it is
needed before all others are loaded."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
MALLOC_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""For children: keeps glibc from giving big blocks back, which costs page faults with every tensor."""


def tune_malloc(kept: int = 1 << 30) -> bool:
    """The same from inside, whatever the environment says; False where libc ignores it. Blocks of `kept` bytes and more are
    given back when they are freed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = {_M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 << 20, _M_MMAP_THRESHOLD: kept, _M_ARENA_MAX: 1}
    return all(mallopt(option, value) == 1 for option, value in wanted.items())

"""Ports for servers that are started again: nobody else gets one while its server is away."""

import functools
import itertools
import socket
from collections.abc import Iterator

from paceline.launch.this_machine.free_ports import is_free

FIRST, END, EACH = 20_000, 32_768, 256
"""Below those that the system gives to a bind to port 0 and to a connection, so neither takes one of these by chance."""


def own_port() -> int:
    """A port of this test process on which nothing listens."""
    return next(port for port in _block()[1] if is_free(port))


@functools.cache
def _block() -> tuple[socket.socket, Iterator[int]]:
    """The ports of this test process, each in turn. As long as it lives it holds the one before them, so no other test process
    takes the same ones."""
    for first in range(FIRST, END - EACH, EACH):
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", first))
        except OSError:
            held.close()
        else:
            return held, itertools.cycle(range(first + 1, first + EACH))
    raise AssertionError("every block of ports is taken")

"""A line to a server that breaks again and again: each connection carries a fixed number of bytes."""

import socket
import threading
from contextlib import suppress

_MOST = 64 << 10


class BreakingLine:
    """Listens on `port`, and carries what comes to the server's port. `most`: bytes to the server until a connection is cut."""

    def __init__(self, port: int, most: int) -> None:
        self._server = port
        self._most = most
        self.connections = 0
        self._listening = socket.create_server(("localhost", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.connections += 1
                far = socket.create_connection(("localhost", self._server))
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        left = self._most
        with suppress(OSError):
            while left and (data := near.recv(min(left, _MOST))):
                far.sendall(data)
                left -= len(data)
        for end, how in ((far, socket.SHUT_WR), (near, socket.SHUT_RDWR)):
            with suppress(OSError):
                end.shutdown(how)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        """Reads on after the cut: an answer that nobody reads would take from the server what has come."""
        with far, near, suppress(OSError):
            while data := far.recv(_MOST):
                with suppress(OSError):
                    near.sendall(data)

"""The bytes under a connection: a plain socket that reads into arrays and writes from them; a reader with a small buffer."""

import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct

Buffer = bytes | bytearray | memoryview
_TIMEVAL = Struct("@ll")
"""Seconds and microseconds, as the kernel's timeouts are given."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
"""Linux has it."""
_ACKNOWLEDGED = slice(120, 128)
"""Of the kernel's tcp_info: bytes that the far side's kernel has acknowledged."""
_MOST_BUFFERS = 512
"""Fewer than the kernel's IOV_MAX (1024)."""


def _timeval(seconds: float) -> bytes:
    """Returns a time as the kernel takes it for its timers."""
    return _TIMEVAL.pack(*divmod(int(seconds * 1e6), 10**6))


class PlainSocket:
    """A connected TCP socket. One thread reads; those that write take turns. ConnectionError, or TimeoutError where the far
    side takes or gives nothing for `patience` seconds."""

    def __init__(self, sock: socket.socket, patience: float) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's timeouts: with Python's a socket is polled before each call, and never waits for more than some bytes.
        sock.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, _timeval(patience))
        self._sock = sock
        self.patience = patience
        self.certificate: str | None = None
        """The name in the far side's certificate, '' where it has none; None without TLS."""
        self.on_silence: Callable[[], None] = lambda: None
        """Called when nothing has come for so long; what it raises ends the wait."""

    def wake_each(self, seconds: float) -> None:
        """From now on `on_silence` is called when nothing has come for so long."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    @property
    def acknowledged(self) -> int:
        """Bytes that the far side's kernel has so far; 0 where this is no TCP, or the system does not tell."""
        if _TCP_INFO is None:
            return 0
        with suppress(OSError):
            found = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ACKNOWLEDGED.stop)
            return int.from_bytes(found[_ACKNOWLEDGED], sys.byteorder)
        return 0

    def receive(self, view: memoryview, whole: bool = False) -> int:
        """Some bytes, with `whole` as many as fit, unless they pause; 0 at the end."""
        while True:
            try:
                return self._sock.recv_into(view, 0, socket.MSG_WAITALL if whole else 0)
            except BlockingIOError:
                self.on_silence()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """All of them."""
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        left = sum(map(len, views))
        acknowledged: int | None = None
        while left:
            try:
                sent = self._sock.sendmsg(views[:_MOST_BUFFERS])
            except BlockingIOError as error:
                before, acknowledged = acknowledged, self.acknowledged
                # slow, but it may move: the kernel waits until much of its buffer is free
                if before is None or acknowledged > before:
                    continue
                raise TimeoutError("the far side does not read") from error
            left -= sent
            if not left:
                return
            if acknowledged is None:  # the kernel's buffer is full; asking it costs as much as a small send
                acknowledged = self.acknowledged
            done = 0
            while done < len(views) and sent >= len(views[done]):
                sent -= len(views[done])
                done += 1
            del views[:done]
            if sent:
                views[0] = views[0][sent:]

    def try_send(self, data: Buffer) -> int:
        """As many as go without waiting."""
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def wait_for_either(self) -> bool:
        """Until there is something to read (True) or room to write."""
        poll = select.poll()  # select.select takes no descriptor beyond 1023
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        return any(events & ~select.POLLOUT for _, events in poll.poll(1000))

    def close(self) -> None:
        """Wakes the threads that read or write. The descriptor stays: another connection would get it while they still use
        it."""
        with suppress(OSError):  # the far side was quicker
            # not an SSL socket's own, after which it would go on in plain text
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def end_sending(self) -> None:
        """The far side reads to the end of what was sent; what it sends is still read."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_WR)

    def linger(self) -> None:
        """Lets the far side read what was sent last."""
        linger(self._sock)

    def release(self) -> None:
        """Gives the descriptor back, when nobody reads or writes any more."""
        self._sock.close()


def linger(sock: socket.socket, seconds: float = 1.0) -> None:
    """Lets the far side read what was sent last: a close while bytes from it are unread would throw that away. Past TLS
    where there is some: nothing that comes is of interest any more."""
    end, scratch = time.monotonic() + seconds, bytearray(1 << 14)
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_WR)
        while wait(sock, select.POLLIN, end - time.monotonic()):
            if not socket.socket.recv_into(sock, scratch):
                return


def wait(sock: socket.socket, wanted: int, seconds: float) -> bool:
    """Whether the socket can be read or written within this many seconds."""
    poll = select.poll()  # select.select takes no descriptor beyond 1023
    poll.register(sock, wanted)
    return seconds > 0 and bool(poll.poll(seconds * 1000))


class Reader:
    """Reads exact counts; what is large goes straight to its place, past the buffer."""

    def __init__(self, sock: PlainSocket, size: int = 16 << 10) -> None:
        self._sock = sock
        self.on_some: Callable[[], None] = lambda: None
        """Called when some bytes have come that go past the buffer."""
        self._view = memoryview(bytearray(size))
        self._start = self._end = 0

    def exact(self, count: int) -> bytes:
        """This many bytes. ConnectionError at the end."""
        if self._start == self._end and 0 < count <= len(self._view):
            self._end = self._some(self._view)
            self._start = 0
        if self._end - self._start >= count:
            self._start += count
            return bytes(self._view[self._start - count : self._start])
        found = bytearray(count)
        self.into(memoryview(found))
        return bytes(found)

    def into(self, place: memoryview) -> None:
        """Fills the place."""
        at = 0
        while at < len(place):
            if self._start == self._end and len(place) - at >= len(self._view):
                at += self._some(place[at:], whole=True)
                self.on_some()
                continue
            if self._start == self._end:
                self._end = self._some(self._view)
                self._start = 0
            count = min(len(place) - at, self._end - self._start)
            place[at : at + count] = self._view[self._start : self._start + count]
            self._start += count
            at += count

    def skip(self, count: int) -> None:
        """Drops this many bytes."""
        while count:
            some = min(count, len(self._view))
            self.exact(some)
            count -= some

    def _some(self, place: memoryview, whole: bool = False) -> int:
        count = self._sock.receive(place, whole)
        if not count:
            raise ConnectionError("The far side closed the connection.")
        return count

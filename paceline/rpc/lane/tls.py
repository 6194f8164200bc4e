"""TLS under a connection of the lane: the handshake, and a socket that does what the plain one does, encrypted."""

import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from paceline.core.errors import ConfigError, TryAgain, Unauthenticated
from paceline.rpc.lane.sockets import Buffer, PlainSocket, linger, wait
from paceline.rpc.tls import name_in, not_encrypted, refused, untrusted

HANDSHAKE = 10.0
"""Seconds that it may take in all."""
_RECORD = 16 << 10
"""Most bytes that TLS encrypts at once."""
_AT_ONCE = 8
"""Records for which the lock is held, at most."""
_WORTH_WAKING = 128 << 10
"""Bytes that must have come before a reader of many is woken."""


class TlsSocket(PlainSocket):
    """A socket after its handshake. OpenSSL must not read and write one connection at the same time, so each call is made
    under a lock, which nobody holds while waiting: the socket underneath never blocks."""

    def __init__(self, sock: ssl.SSLSocket, patience: float, first: bytes = b"") -> None:
        """`first`: bytes that have been read already."""
        super().__init__(sock, patience)
        sock.setblocking(False)
        self._sock: ssl.SSLSocket = sock
        self._patience = patience
        self._first = first
        self._lock = threading.Lock()
        self._least = 1
        """Bytes that make the socket readable, as the kernel knows."""

    def receive(self, view: memoryview, whole: bool = False) -> int:
        if self._first:
            count = min(len(view), len(self._first))
            view[:count] = self._first[:count]
            self._first = self._first[count:]
            return count
        at = 0
        while True:
            wanted = 0
            with self._lock:
                try:
                    for _ in range(_AT_ONCE):
                        count = self._sock.recv_into(view[at:])
                        at += count
                        if not (count and whole and at < len(view)):
                            return at
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            if wanted:
                # One record may have been taken in part, so that less than the rest is still to come.
                self._wake_at(min(_WORTH_WAKING, len(view) - at - 2 * _RECORD) if whole else 1)
                if not wait(self._sock, wanted, self._patience):
                    if at:
                        return at
                    self.on_silence()

    def send(self, buffers: Sequence[Buffer]) -> None:
        records = _records(buffers)
        record = next(records, None)
        while record is not None:
            wanted = 0
            with self._lock:
                try:
                    for _ in range(_AT_ONCE):
                        record = record[self._sock.send(record) :] or next(records, None)
                        if record is None:
                            return
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
            if wanted and not wait(self._sock, wanted, self._patience):
                raise TimeoutError("the far side does not read")

    def try_send(self, data: Buffer) -> int:
        """What did not go must come first in the next sending: OpenSSL may have encrypted it already."""
        view, sent = memoryview(data), 0
        with self._lock, suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while sent < len(view):
                sent += self._sock.send(view[sent : sent + _RECORD])
        return sent

    def wait_for_either(self) -> bool:
        with self._lock:
            if self._first or self._sock.pending():
                return True
        self._wake_at(1)
        return super().wait_for_either()

    def _wake_at(self, count: int) -> None:
        """The kernel wakes the reader when this many bytes have come, not with each record."""
        if self._least != max(1, count):
            self._least = max(1, count)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._least)


def encrypted_client(sock: socket.socket, context: ssl.SSLContext, address: str, patience: float) -> TlsSocket:
    """A client's socket once the server has said its first word: with TLS 1.3 a client has finished before the server has
    looked at its certificate. Unauthenticated where one refuses the other, ConfigError where the server speaks no TLS, TryAgain
    for all else."""
    deadline, host = time.monotonic() + HANDSHAKE, address.rpartition(":")[0].strip("[]")
    wrapped: socket.socket = sock
    try:
        wrapped = shaken = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        first = _first_bytes(_shake(shaken, deadline), deadline)
    except ssl.SSLCertVerificationError as error:
        wrapped.close()
        raise Unauthenticated(untrusted(address, error.verify_message)) from error
    except OSError as error:
        wrapped.close()
        reason = str(getattr(error, "reason", ""))
        if "WRONG_VERSION" in reason:
            raise ConfigError(not_encrypted(address)) from error
        if "_ALERT_" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            words = reason.partition("_ALERT_")[2].replace("_", " ").lower()
            raise Unauthenticated(refused(address, words)) from error
        raise TryAgain(f"No TLS connection to {address}: {error}.") from error
    return TlsSocket(shaken, patience, first)


def encrypted_server(sock: socket.socket, context: ssl.SSLContext, patience: float) -> TlsSocket | None:
    """A server's socket after the handshake; None where that has failed, and the peer knows why."""
    try:
        wrapped = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    except OSError:  # it has gone again
        sock.close()
        return None
    try:
        found = TlsSocket(shaken := _shake(wrapped, time.monotonic() + HANDSHAKE), patience)
        found.certificate = name_in(shaken.getpeercert())
        return found
    except OSError:
        linger(wrapped)
        wrapped.close()
        return None


def _shake(sock: ssl.SSLSocket, deadline: float) -> ssl.SSLSocket:
    """OSError where it fails, or takes too long."""
    sock.setblocking(False)
    while True:
        try:
            sock.do_handshake()
            break
        except ssl.SSLWantReadError:
            wanted = select.POLLIN
        except ssl.SSLWantWriteError:
            wanted = select.POLLOUT
        if not wait(sock, wanted, deadline - time.monotonic()):
            raise TimeoutError(f"the handshake took more than {HANDSHAKE:.0f} s")
    if sock.selected_alpn_protocol() != "h2":
        raise ConnectionError("the far side does not speak HTTP/2")
    return sock


def _first_bytes(sock: ssl.SSLSocket, deadline: float) -> bytes:
    while True:
        try:
            if first := sock.recv(64):
                return first
            raise ConnectionError("the far side closed the connection")
        except ssl.SSLWantReadError:
            if not wait(sock, select.POLLIN, deadline - time.monotonic()):
                raise TimeoutError(f"the server said nothing for {HANDSHAKE:.0f} s") from None


def _records(buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    """The bytes in pieces of a record each: what is small goes together, what is large is not copied but for its ends."""
    held = bytearray()
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        if held:
            at = min(len(view), _RECORD - len(held))
            held += view[:at]
            if len(held) < _RECORD:
                continue
            yield memoryview(held)
            held = bytearray()
        while len(view) - at >= _RECORD:
            yield view[at : at + _RECORD]
            at += _RECORD
        held += view[at:]
    if held:
        yield memoryview(held)

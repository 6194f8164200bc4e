"""TLS under a connection of the lane: the handshake, and a socket that does what the plain one does, encrypted. OpenSSL
works in memory: many records go to the kernel, and come from it, in one call."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from paceline.core.errors import ConfigError, TryAgain, Unauthenticated
from paceline.rpc.lane.sockets import Buffer, PlainSocket, linger
from paceline.rpc.tls import name_in, not_encrypted, refused, untrusted

HANDSHAKE = 10.0
"""Seconds that it may take in all."""
_RECORD = 16 << 10
"""Most bytes that TLS encrypts at once."""
_MARGIN = 1 << 10
"""More bytes than a record has besides its content."""
_PIECE = 512 << 10
"""Bytes that are encrypted, or come, before the next call of the kernel."""
_OWN_WORDS = 16 << 10
"""Bytes of OpenSSL's own, such as answers to new keys, that wait for the next sending."""


class Session:
    """One end of TLS in memory: what OpenSSL reads is put in, what it writes is taken out. Thread-safe: OpenSSL must not read
    and write one connection at the same time, so each call is made under a lock, and none of them waits."""

    def __init__(self, context: ssl.SSLContext, host: str | None = None) -> None:
        """`host`: the server that a client calls; None for a server."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._lock = threading.Lock()

    def shake(self, sock: socket.socket, deadline: float) -> None:
        """OSError where it fails, or takes too long."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._tell(sock, deadline)
                self._hear(sock, deadline)
            except ssl.SSLError:
                self._tell(sock, deadline)  # why
                raise
        self._tell(sock, deadline)
        if self._tls.selected_alpn_protocol() != "h2":
            raise ConnectionError("the far side does not speak HTTP/2")

    @property
    def name(self) -> str:
        """Whose the far side's certificate is, once the hands are shaken."""
        return name_in(self._tls.getpeercert())

    def first_bytes(self, sock: socket.socket, deadline: float) -> bytes:
        """What the far side says first after the handshake."""
        while True:
            try:
                if first := self._tls.read(64):
                    return first
                raise ConnectionError("the far side closed the connection")
            except ssl.SSLWantReadError:
                self._hear(sock, deadline)

    def _tell(self, sock: socket.socket, deadline: float) -> None:
        if self._outgoing.pending:
            with _limit(sock, deadline):
                sock.sendall(self._outgoing.read())

    def _hear(self, sock: socket.socket, deadline: float) -> None:
        with _limit(sock, deadline):
            came = sock.recv(_RECORD)
        if not came:
            raise ConnectionError("the far side closed the connection")
        self._incoming.write(came)

    def encrypt(self, data: Buffer) -> bytes:
        """What goes out for it, and before it OpenSSL's own words."""
        with self._lock:
            self._tls.write(data)
            return self._outgoing.read()

    def put(self, came: bytes) -> None:
        """Bytes of the far side's."""
        with self._lock:
            self._incoming.write(came)

    def decrypt(self, view: memoryview) -> tuple[int, bool]:
        """How many bytes of what was put in have become readable, and whether no more can: the view is full, or the far side
        has ended. ConnectionError where the far side makes OpenSSL say too much itself."""
        at, is_all = 0, True
        with self._lock:
            try:
                # with a place to read into it returns a count, which typeshed does not know
                while at < len(view) and (count := int(self._tls.read(len(view) - at, view[at:]))):
                    at += count
            except ssl.SSLWantReadError:
                is_all = False
            if self._outgoing.pending > _OWN_WORDS:
                raise ConnectionError("the far side asks for new keys without end")
        return at, is_all

    @property
    def has_more(self) -> bool:
        """Whether bytes have been put in that were not read."""
        with self._lock:
            return bool(self._tls.pending() or self._incoming.pending)


class TlsSocket(PlainSocket):
    """A socket after its handshake."""

    def __init__(self, sock: socket.socket, session: Session, patience: float, first: bytes = b"") -> None:
        """`first`: bytes that have been read already."""
        super().__init__(sock, patience)
        self._session = session
        self._first = first
        self._left = b""
        """Encrypted bytes that the socket did not take."""
        self._owed = 0
        """Bytes, the first of the next sending, that they stand for."""

    def receive(self, view: memoryview, whole: bool = False) -> int:
        if self._first:
            count = min(len(view), len(self._first))
            view[:count] = self._first[:count]
            self._first = self._first[count:]
            return count
        at = 0
        while True:
            count, is_all = self._session.decrypt(view[at:])
            at += count
            if is_all or (at and not whole):
                return at
            left = len(view) - at
            # OpenSSL may hold most of a record: so much less than what is left is still to come.
            surely = min(_PIECE, left - _RECORD - _MARGIN) if whole else 0
            try:
                if surely > 0:
                    came = self._sock.recv(surely, socket.MSG_WAITALL)
                else:
                    came = self._sock.recv(min(_PIECE, left + _MARGIN))
            except BlockingIOError:
                if at:
                    return at
                self.on_silence()
                continue
            if not came:
                return at
            self._session.put(came)

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self._left:
            super().send([self._left])
        owed, self._owed, self._left = self._owed, 0, b""
        for piece in _pieces(buffers):
            if len(piece) > owed:
                super().send([self._session.encrypt(piece[owed:])])
            owed = 0

    def try_send(self, data: Buffer) -> int:
        """What did not go must come first in the next sending: it may have been encrypted already."""
        view, sent = memoryview(data), 0
        while self._has_flushed():
            sent, self._owed = sent + self._owed, 0
            if sent == len(view):
                break
            piece = view[sent : sent + _RECORD]
            try:
                self._left = self._session.encrypt(piece)
            except ssl.SSLWantReadError:
                break
            self._owed = len(piece)
        return sent

    def _has_flushed(self) -> bool:
        while self._left:
            count = super().try_send(self._left)
            if not count:
                return False
            self._left = self._left[count:]
        return True

    def wait_for_either(self) -> bool:
        return bool(self._first) or self._session.has_more or super().wait_for_either()


def encrypted_client(sock: socket.socket, context: ssl.SSLContext, address: str, patience: float) -> TlsSocket:
    """A client's socket once the server has said its first word: with TLS 1.3 a client has finished before the server has
    looked at its certificate. Unauthenticated where one refuses the other, ConfigError where the server speaks no TLS, TryAgain
    for all else."""
    deadline, host = time.monotonic() + HANDSHAKE, address.rpartition(":")[0].strip("[]")
    try:
        session = Session(context, host)
        session.shake(sock, deadline)
        return TlsSocket(sock, session, patience, session.first_bytes(sock, deadline))
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise Unauthenticated(untrusted(address, error.verify_message)) from error
    except OSError as error:
        sock.close()
        reason = str(getattr(error, "reason", ""))
        if "WRONG_VERSION" in reason:
            raise ConfigError(not_encrypted(address)) from error
        if "_ALERT_" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            words = reason.partition("_ALERT_")[2].replace("_", " ").lower()
            raise Unauthenticated(refused(address, words)) from error
        raise TryAgain(f"No TLS connection to {address}: {error}.") from error


def encrypted_server(sock: socket.socket, context: ssl.SSLContext, patience: float) -> TlsSocket | None:
    """A server's socket after the handshake; None where that has failed, and the peer knows why."""
    try:
        session = Session(context)
        session.shake(sock, time.monotonic() + HANDSHAKE)
        found = TlsSocket(sock, session, patience)
        found.certificate = session.name
        return found
    except OSError:
        linger(sock)
        sock.close()
        return None


@contextmanager
def _limit(sock: socket.socket, deadline: float) -> Iterator[None]:
    """A TimeoutError at the deadline that says so."""
    try:
        sock.settimeout(max(1e-6, deadline - time.monotonic()))
        yield
    except TimeoutError:
        raise TimeoutError(f"the handshake took more than {HANDSHAKE:.0f} s") from None


def _pieces(buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    """The bytes in pieces of the same size: what is small goes together, what is large is not copied but for its ends."""
    held = bytearray()
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        if held:
            at = min(len(view), _PIECE - len(held))
            held += view[:at]
            if len(held) < _PIECE:
                continue
            yield memoryview(held)
            held = bytearray()
        while len(view) - at >= _PIECE:
            yield view[at : at + _PIECE]
            at += _PIECE
        held += view[at:]
    if held:
        yield memoryview(held)

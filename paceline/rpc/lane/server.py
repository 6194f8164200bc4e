"""The lane's listening end: accepts connections, and finds a thread for each call."""

import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paceline.core.errors import ConfigError, TryAgain
from paceline.rpc.auth import HEADER, Authentication
from paceline.rpc.host import Gate, Observe, Refused
from paceline.rpc.lane import frames
from paceline.rpc.lane.call import NO_THREAD, Call, Routes
from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.frames import Code, Violation
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.threads import After, Threads
from paceline.rpc.lane.tls import encrypted_server
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.listening import LOOPBACK, listening_socket
from paceline.rpc.shares import Shares
from paceline.rpc.tls import KeyFolder, key_folder
from paceline.rpc.watchdog import Watchdog

CONNECTIONS = 1024
"""At once; each is a thread that mostly sleeps."""
_FAREWELL = 1.0
"""Seconds in which clients may read their last answers."""
PATIENCE = 20.0
"""Seconds without a byte until a peer is pinged, and as many again until it is given up."""


class LaneServer:
    """Listens on its own port. Thread-safe."""

    def __init__(
        self,
        routes: Routes,
        threads: int,
        authentication: Authentication,
        observe: Observe,
        watchdog: Watchdog,
        port: int = 0,
        tls: Path | None = None,
        what: str = "lane",
        host: str = LOOPBACK,
        shares: Shares | None = None,
    ) -> None:
        """`tls`: folder of keys; `what`: the port's name in an error; `host`: where it listens; `shares`: as `make_server`
        takes them."""
        self._routes = routes
        self._gate = Gate(authentication, observe, shares)
        self._watchdog = watchdog
        self._threads = Threads(threads)
        self._connections: set[Connection] = set()
        self._keys = key_folder(tls) if tls else None
        self._greeted = 0
        """The second: connections that are in their handshake."""
        self.traffic = Traffic()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        try:
            self._socket = listening_socket(host, port, 128)
        except OSError as error:
            raise ConfigError(
                f"Can't listen on {what} port {port} of {host}: {error.strerror}. Choose another one, or 0 for any free "
                "port."
            ) from error
        self.port: int = self._socket.getsockname()[1]

    def start(self) -> None:
        """Begins to accept."""
        threading.Thread(target=self._accept, name="lane-accept", daemon=True).start()

    def stop(self, grace: float) -> None:
        """No new calls; those under way may end within `grace` seconds."""
        self._stopped.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(Exception):
                connection.drain()
        _wait_until(lambda: all(connection.is_idle for connection in connections), grace)
        if (
            grace
        ):  # a close at once would throw away answers that are not read yet, where the client has just sent something
            for connection in connections:
                connection.end_sending()
            _wait_until(lambda: all(connection.why for connection in connections), min(grace, _FAREWELL))
        for connection in connections:
            connection.close()
        self._threads.stop()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                if self._stopped.wait(0.1):  # otherwise the caller was quicker, or no descriptor is free just now
                    return
                continue
            with self._lock:
                is_full = len(self._connections) + self._greeted >= CONNECTIONS
            if is_full:
                self.traffic.cut_off("sent", Code.ENHANCE_YOUR_CALM)
                _turn_away(sock, self._keys is not None)
            elif self._keys is None:
                self._welcome(PlainSocket(sock, PATIENCE))
            else:
                self._greet(sock, self._keys)

    def _greet(self, sock: socket.socket, keys: KeyFolder) -> None:
        """The handshake of TLS, in its own thread: a peer may take its time."""

        def shake() -> None:
            try:
                encrypted = encrypted_server(sock, keys.newest().server, PATIENCE)
            finally:
                with self._lock:
                    self._greeted -= 1
            if encrypted is not None and not self._stopped.is_set():
                self._welcome(encrypted)
            elif encrypted is not None:
                encrypted.release()

        with self._lock:
            self._greeted += 1
        try:
            threading.Thread(target=shake, name="lane-handshake", daemon=True).start()
        except RuntimeError:  # there is no thread for it
            sock.close()
            with self._lock:
                self._greeted -= 1

    def _welcome(self, sock: PlainSocket) -> None:
        connection: Connection
        connection = Connection(sock, lambda stream: self._called(connection, stream), self._gone, self.traffic)
        with self._lock:
            self._connections.add(connection)
        try:
            connection.start()
        except (OSError, TryAgain, RuntimeError):  # it has gone again, or there is no thread for it
            self._gone(connection)
            sock.release()

    def _gone(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _called(self, connection: Connection, stream: Stream) -> None:
        """In the reader's thread."""
        self._hand_over(Call(connection, stream, self._watchdog, self._threads))

    def _hand_over(self, call: Call) -> None:
        """To a thread. A Violation of the stream's where none is free."""
        if self._stopped.is_set() or not self._threads.run(lambda: self._work(call)):
            raise Violation(Code.REFUSED_STREAM, NO_THREAD, call.stream.number)

    def _work(self, call: Call) -> After:
        return None if self._answer(call) else lambda: self._rest(call)

    def _rest(self, call: Call) -> None:
        """Without a thread until the stream's next message comes."""
        if not call.stream.rest(lambda: self._wake(call)):
            try:
                self._hand_over(call)
            except Violation as error:
                call.refuse("UNAVAILABLE", str(error), "TryAgain")
                call.leave()

    def _wake(self, call: Call) -> None:
        """In the reader's thread, which itself answers what has come as a whole: a small exchange should not wait until another
        thread wakes up. When it has to wait, another one reads."""
        if not call.stream.is_ready:
            self._hand_over(call)
            return
        is_over = True
        try:
            is_over = self._answer(call)
        except Exception:  # a bug: the connection lives on
            traceback.print_exc()
        call.give_back()
        if not is_over:
            self._rest(call)

    def _answer(self, call: Call) -> bool:
        """Answers a call, or one exchange on a stream of them; whether it is over."""
        fields, is_over, handle = call.stream.fields, True, self._routes.get(call.path)
        try:
            if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith("application/grpc"):
                call.headers([(":status", "415")], end=True)
            elif handle is None:
                call.refuse("UNIMPLEMENTED", f"There is no call {fields[':path']} here.", "")
            else:
                try:
                    if not call.has_ended_well:
                        name, certificate = call.path.rpartition("/")[2], call.connection.certificate
                        with self._gate.call(name, fields.get(HEADER), call.is_there, certificate):
                            handle(call)
                    is_over = call.stream.is_over
                    if is_over:
                        call.headers([("grpc-status", "0")], end=True)  # when it has been counted, as on grpcio
                except Refused as refused:
                    call.refuse(refused.status, str(refused), refused.kind)
        except TryAgain:  # the connection is lost, and its reader has not seen it yet
            pass
        except Exception:
            if call.is_there():
                call.connection.finish(call.stream, Code.INTERNAL_ERROR)
                raise
        finally:
            if is_over:
                call.leave()
        return is_over


def _wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    """Not longer than this."""
    for _ in range(int(seconds / 0.05)):
        if is_so():
            return
        time.sleep(0.05)


def _turn_away(sock: socket.socket, is_encrypted: bool) -> None:
    """Says why, as far as that goes without waiting, and without a handshake."""
    text = f"The server has {CONNECTIONS} connections already."
    with suppress(OSError), sock:
        words = frames.settings_frame({}) + frames.goaway(0, Code.ENHANCE_YOUR_CALM, text)
        if not is_encrypted:
            sock.send(words, socket.MSG_DONTWAIT)

"""Serves a ParameterService on the lane: accepts connections, and answers each call by the same servicer as grpcio does."""

import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message

from paceline.core.errors import BadPush, ConfigError, Overloaded, TryAgain
from paceline.rpc.auth import HEADER, Authentication
from paceline.rpc.channel import ERROR_KEY
from paceline.rpc.grpc_plane import SERVICE, push_head
from paceline.rpc.host import Gate, Observe, Refused
from paceline.rpc.lane import frames
from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.frames import Code, Violation
from paceline.rpc.lane.messages import Pieces, cut, prefixed
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.texts import STATUS, percent_encoded, seconds_of
from paceline.rpc.lane.threads import After, Threads
from paceline.rpc.lane.tls import encrypted_server
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.tls import KeyFolder, key_folder
from paceline.rpc.transport import Outgoing, ParameterService, Sink, Upload
from paceline.rpc.watchdog import Watchdog
from paceline.v1 import parameter_service_pb2 as pb

CONNECTIONS = 1024
"""At once; each is a thread that mostly sleeps."""
PATIENCE = 20.0
"""Seconds without a byte until a peer is pinged, and as many again until it is given up."""
_NO_THREAD = "The server answers as many calls as it can, or is shutting down."
_OK = [(":status", "200"), ("content-type", "application/grpc")]


class LaneServer:
    """Listens on a port of its own. Thread-safe."""

    def __init__(
        self, service: ParameterService, threads: int, authentication: Authentication, observe: Observe,
        watchdog: Watchdog, port: int = 0, tls: Path | None = None,
    ) -> None:  # fmt: skip
        """`tls`: folder of keys."""
        self._service, self._gate, self._watchdog = service, Gate(authentication, observe), watchdog
        self._threads = Threads(threads)
        self._connections: set[Connection] = set()
        self._keys, self._greeted = key_folder(tls) if tls else None, 0
        """The second: connections that are in their handshake."""
        self.traffic = Traffic()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        try:
            self._socket = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        except OSError as error:
            raise ConfigError(
                f"Can't listen on lane port {port}: {error.strerror}. Choose another one, or 0 for any free port."
            ) from error
        self.port: int = self._socket.getsockname()[1]

        def sparse(call: _Call) -> Callable[[pb.SparsePush], pb.SparsePull]:
            return lambda request: self._service.push_sparse(request, call.may_wait)

        self._calls: dict[str, Callable[[_Call], None]] = {
            "Resume": lambda call: call.unary(pb.ResumeRequest, self._service.resume),
            "PushPullSparse": lambda call: call.unary(pb.SparsePush, sparse(call)),
            "ExchangeSparse": lambda call: call.exchange(pb.SparsePush, sparse(call)),
            "Initialise": lambda call: call.upload(
                self._service.initialise, False, lambda outgoing: pb.InitialiseReply(term=outgoing.head.term)
            ),
            "Push": lambda call: call.upload(
                self._service.push, False, lambda outgoing: pb.PullPart(head=outgoing.head)
            ),
            "PushPull": lambda call: call.upload(self._service.push, True, None),
            "Pull": lambda call: call.download(pb.PullRequest, self._service.pull),
        }

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
        ended = threading.Event()
        for _ in range(int(grace / 0.05)):
            if all(connection.is_idle for connection in connections):
                break
            ended.wait(0.05)
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
        """The handshake of TLS, in a thread of its own: a peer may take its time."""

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
        self._hand_over(_Call(connection, stream, self._watchdog, self._threads))

    def _hand_over(self, call: "_Call") -> None:
        """To a thread. A Violation of the stream's where none is free."""
        if self._stopped.is_set() or not self._threads.run(lambda: self._work(call)):
            raise Violation(Code.REFUSED_STREAM, _NO_THREAD, call.stream.number)

    def _work(self, call: "_Call") -> After:
        return None if self._answer(call) else lambda: self._rest(call)

    def _rest(self, call: "_Call") -> None:
        """Without a thread until the stream's next message comes."""
        if not call.stream.rest(lambda: self._wake(call)):
            try:
                self._hand_over(call)
            except Violation as error:
                call.refuse("UNAVAILABLE", str(error), "TryAgain")
                call.leave()

    def _wake(self, call: "_Call") -> None:
        """In the reader's thread, which itself answers what is there as a whole: a small exchange is not to wait until another
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

    def _answer(self, call: "_Call") -> bool:
        """Answers a call, or one exchange on a stream of them; whether it is over."""
        fields, is_over, handle = call.stream.fields, True, self._calls.get(call.name)
        try:
            if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith("application/grpc"):
                call.headers([(":status", "415")], end=True)
            elif handle is None:
                call.refuse("UNIMPLEMENTED", f"There is no call {fields[':path']} here.", "")
            else:
                try:
                    if not call.has_ended_well:
                        with self._gate.call(call.name, fields.get(HEADER), call.is_there):
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


def _turn_away(sock: socket.socket, is_encrypted: bool) -> None:
    """Says why, as far as that goes without waiting, and without a handshake."""
    text = f"The server has {CONNECTIONS} connections already."
    with suppress(OSError), sock:
        words = frames.settings_frame({}) + frames.goaway(0, Code.ENHANCE_YOUR_CALM, text)
        if not is_encrypted:
            sock.send(words, socket.MSG_DONTWAIT)


class _Call:
    """One call as a server sees it, in a thread of the pool; a later exchange in the reader's, and between two in none."""

    def __init__(self, connection: Connection, stream: Stream, watchdog: Watchdog, threads: Threads) -> None:
        self.connection, self.stream, self._watchdog, self._threads = connection, stream, watchdog, threads
        service, _, name = stream.fields.get(":path", "").lstrip("/").partition("/")
        self.name = name if service == SERVICE else ""
        self._is_lent, stream.on_wait = False, self._read_elsewhere
        with suppress(ValueError):  # without a deadline, or with one that can't be read
            stream.deadline = time.monotonic() + seconds_of(stream.fields.get("grpc-timeout", ""))
        self._has_begun, self._last_sent = False, 0.0
        stream.clock, stream.touched = watchdog.now, watchdog.now()

    def is_there(self) -> bool:
        """Whether the caller still waits."""
        return not self.stream.is_reset and time.monotonic() < self.stream.deadline

    def may_wait(self) -> bool:
        """The same, asked before each wait."""
        self._read_elsewhere()
        return self.is_there()

    def _read_elsewhere(self) -> None:
        """Where this is the reader's thread it counts as one of the pool's, and another one reads. TryAgain where there is
        none."""
        if not self.connection.is_read_here:
            return
        self._is_lent = self._threads.lend()
        try:
            if not self._is_lent:
                raise RuntimeError
            self.connection.read_elsewhere()
        except RuntimeError:
            raise TryAgain(_NO_THREAD) from None

    def give_back(self) -> None:
        """Its thread ends, or reads again."""
        if self._is_lent:
            self._is_lent = False
            self._threads.give_back()

    @property
    def has_ended_well(self) -> bool:
        """Whether the caller has ended it between two exchanges."""
        stream = self.stream
        return self._has_begun and stream.is_over and (stream.failure is None or stream.is_reset)

    def unary(self, kind: type[Message], answer: Callable[[Any], Message]) -> None:
        """One message in, one out."""
        reply = answer(self._request(kind))
        self._reply(reply.SerializeToString())

    def exchange(self, kind: type[Message], answer: Callable[[Any], Message]) -> None:
        """The same, and another may follow on the stream."""
        if not self._has_begun:
            self.connection.grant(self.stream, self.stream.attach(None))
        with nullcontext() if self.stream.is_ready else self._watchdog.waiting(self._progress, self.cancel):
            message = self.stream.message()
        self._check()
        self._reply(answer(_parsed(kind, message)).SerializeToString())

    def download(self, kind: type[Message], serve: Callable[..., AbstractContextManager[Outgoing]]) -> None:
        """One message in, weights out."""
        with serve(self._request(kind), self.is_there) as outgoing:
            self._weights(outgoing)

    def upload(
        self, serve: Callable[..., AbstractContextManager[Upload]], wants_weights: bool,
        reply: Callable[[Outgoing], Message] | None,
    ) -> None:  # fmt: skip
        """Parts in, one message or weights out."""
        stream = self.stream
        with self._watchdog.waiting(self._progress, self.cancel):
            stream.first.wait()
        self._check()
        with serve(push_head(stream.head), self.is_there) as upload:
            try:
                self._receive(upload)
            finally:
                stream.take_back(self.connection.close)
            with upload.finish(wants_weights) as outgoing:
                if reply is None:
                    self._weights(outgoing)
                else:
                    self._reply(reply(outgoing).SerializeToString())

    def refuse(self, status: str, text: str, kind: str) -> None:
        """Ends the call with an error."""
        fields = [("grpc-status", str(STATUS[status])), ("grpc-message", percent_encoded(text))]
        if kind:
            fields.append((ERROR_KEY, kind))
        with suppress(Exception):
            self.headers([*([] if self._has_begun else _OK), *fields], end=True)

    def headers(self, fields: list[tuple[str, str]], end: bool = False) -> None:
        self._has_begun = True
        if self.is_there():
            self.connection.headers(self.stream, fields, end)

    def leave(self) -> None:
        """The call is over."""
        with suppress(Exception):
            self.connection.finish(self.stream, Code.NO_ERROR if self.stream.has_sent_all else Code.CANCEL)

    def cancel(self) -> None:
        """The far side has been idle for too long."""
        text = "The caller was idle for too long."
        if not self.stream.detach(Overloaded(text)) or self.connection.is_stuck:
            self.connection.close(Violation(Code.ENHANCE_YOUR_CALM, text))

    def _progress(self) -> float:
        return self.stream.touched

    def _check(self) -> None:
        if self.stream.is_reset:
            raise ConnectionAbortedError(str(self.stream.failure))
        if self.stream.failure is not None:
            raise self.stream.failure

    def _request(self, kind: type[Message]) -> Any:
        self._receive(None)
        return _parsed(kind, self.stream.message())

    def _receive(self, sink: Sink | None) -> None:
        """Puts all parts in the sink; without one keeps the message."""
        stream = self.stream
        with self._watchdog.waiting(self._progress, self.cancel):
            self.connection.grant(stream, stream.attach(sink))
            stream.done.wait()
        self._check()

    def _reply(self, message: bytes) -> None:
        self._send([(prefixed(message), memoryview(b""))])

    def _weights(self, outgoing: Outgoing) -> None:
        self._send(cut(outgoing.head.SerializeToString(), outgoing.parts))

    def _send(self, messages: Iterable[Pieces]) -> None:
        """The answer but for its trailers."""
        if not self._has_begun:
            self.headers(_OK)
        self._last_sent = self._watchdog.now()
        with self._watchdog.waiting(lambda: self._last_sent, self.cancel):
            for message in messages:
                self._last_sent = self._watchdog.now()
                self.connection.send(self.stream, message)


def _parsed(kind: type[Message], message: bytes | None) -> Any:
    if message is None:
        raise BadPush(f"This call takes a {kind.DESCRIPTOR.name}; none came.")
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise BadPush(f"The message is damaged: it is not a {kind.DESCRIPTOR.name}. Compare the versions.") from error

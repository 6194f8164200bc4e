"""Serving: a gRPC server with a bounded pool of threads, a gate before every call, and health on its own port."""

import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from paceline.base.own_files import blamed
from paceline.core.errors import BadPush, ConfigError, PacelineError
from paceline.rpc.auth import HEADER, Authentication
from paceline.rpc.bounds import MOST_BYTES, checked
from paceline.rpc.channel import ERROR_KEY, RENEWAL_KEY
from paceline.rpc.listening import LOOPBACK, with_port
from paceline.rpc.roles import admit_certificate, answer, caller
from paceline.rpc.shares import Shares
from paceline.rpc.tls import key_folder

Observe = Callable[[str, str, float], None]
"""(method, status name, seconds) of every finished call."""
_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    # a window that does not grow: what is not read yet of a push that waits for a buffer must not become a slice's size
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2 << 20),
    # Without this a second server binds the same port in silence.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # Finds callers whose machine or network is gone: their calls would hold threads forever.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def make_server(
    threads: int,
    authentication: Authentication,
    observe: Observe,
    shares: Shares | None = None,
    apart: Collection[str] = (),
) -> grpc.Server:
    """A server whose calls are checked, counted and answered with the right status when they raise. `shares`: those of its
    callers on all transports; None: on this one. `apart`: services that have as many threads each, which no other call
    takes."""
    pools = {service: ThreadPoolExecutor(threads, thread_name_prefix="call-apart") for service in apart}
    return grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="call"),
        options=_OPTIONS,
        interceptors=[_Interceptor(Gate(authentication, observe, shares), pools)],
        # where services are apart, calls wait for a thread of theirs: a limit for all would let those of one refuse another's
        maximum_concurrent_rpcs=None if pools else threads,
    )


def bind(server: grpc.Server, port: int, what: str, tls: Path | None = None, host: str = LOOPBACK) -> int:
    """Listens on the port (0: any free one) and returns it; ConfigError when it is taken. `tls`: folder of keys; callers show
    a certificate, too."""
    address = with_port(host, port)
    try:
        bound = (
            server.add_insecure_port(address)
            if tls is None
            else server.add_secure_port(address, key_folder(tls).for_server())
        )
    except RuntimeError:
        bound = 0
    if not bound:
        raise ConfigError(
            f"Can't listen on {what} port {port}: it is in use, or {host} is not here. Choose another one, or 0 for any "
            "free port."
        )
    return bound


class Health:
    """grpc.health.v1 on its own port, so that a busy server still answers."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        self._status = health.HealthServicer()
        self._server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="health"), options=_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(self._status, self._server)
        self.port = bind(self._server, port, "health", host=host)
        self.serving(False)
        self._server.start()

    def serving(self, ready: bool) -> None:
        """Says whether the process is ready."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        self._status.set("", status)

    def stop(self) -> None:
        self._server.stop(0)


class Gate:
    """What comes before every call, on each transport: checks the token and what it opens, counts, and says what an exception
    becomes."""

    def __init__(self, authentication: Authentication, observe: Observe, shares: Shares | None = None) -> None:
        self._authentication = authentication
        self._observe = observe
        self._shares = shares or Shares()

    def renewal(self) -> str:
        """What the token file of the caller should hold from now on; '' where it is good."""
        return self._authentication.renewal(caller())

    @contextmanager
    def call(
        self, name: str, credentials: str | None, is_there: Callable[[], bool], certificate: str | None = None
    ) -> Iterator[None]:
        """Around a call's work. `certificate`: the name in the caller's, '' where it has none, None without TLS. Refused where
        it raises, with the status that the caller gets; what is no PacelineError is a bug, or a caller that went away."""
        start = time.monotonic()
        try:
            who = self._authentication.check(credentials, name)
            admit_certificate(who, certificate)
            answer(who)
            with self._shares.call(who):
                yield
        except Exception as error:
            status, seconds = getattr(error, "status", ""), time.monotonic() - start
            if isinstance(error, PacelineError):
                self._observe(name, status, seconds)
                raise Refused(error) from error
            if not is_there():
                self._observe(name, "CANCELLED", seconds)
                raise
            traceback.print_exc()
            self._observe(name, PacelineError.status, seconds)
            if told := blamed(error):
                raise Refused(ConfigError(told)) from error
            text = f"A bug in the server: {type(error).__name__}: {error}. Its log has the details."
            raise Refused(PacelineError(text)) from error
        self._observe(name, "OK", time.monotonic() - start)


class Refused(Exception):
    """A call ends with an error's status, text and class (metadata `ERROR_KEY`)."""

    def __init__(self, error: PacelineError) -> None:
        super().__init__(str(error))
        self.status = error.status
        self.kind = type(error).__name__


class _Interceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Puts the gate before every handler of a grpcio server, also before its request is read: a caller that sends none would
    hold a thread that nobody has checked and counted."""

    def __init__(self, gate: Gate, pools: Mapping[str, ThreadPoolExecutor]) -> None:
        """`pools`: the threads of services that have their own."""
        self._gate = gate
        self._pools = pools

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        service, _, name = details.method[1:].rpartition("/")
        credentials = dict(details.invocation_metadata).get(HEADER)
        inner = handler.stream_stream or handler.stream_unary or _of_one(handler.unary_stream or handler.unary_unary)
        is_stream = handler.response_streaming
        make = grpc.stream_stream_rpc_method_handler if is_stream else grpc.stream_unary_rpc_method_handler
        handle = (self._stream if is_stream else self._unary)(name, credentials, inner)
        if service in self._pools:
            handle.experimental_thread_pool = self._pools[service]
        return make(handle, handler.request_deserializer, handler.response_serializer)

    def _unary(self, name: str, credentials: Any, inner: Any) -> Any:
        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            try:
                with self._gate.call(name, credentials, context.is_active, _certificate(context)):
                    reply = inner(checked(requests), context)
                if newer := self._gate.renewal():
                    context.set_trailing_metadata(((RENEWAL_KEY, newer.encode()),))
                return reply
            except Refused as refused:
                _abort(context, refused)

        return handle

    def _stream(self, name: str, credentials: Any, inner: Any) -> Any:
        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                with self._gate.call(name, credentials, context.is_active, _certificate(context)):
                    yield from inner(checked(requests), context)
            except Refused as refused:
                _abort(context, refused)

        return handle


def _certificate(context: grpc.ServicerContext) -> str | None:
    """As `Gate.call` takes it."""
    found: Mapping[str, Any] = context.auth_context()
    if found.get("transport_security_type") != [b"ssl"]:
        return None
    return str(found.get("x509_common_name", [b""])[0], errors="replace")


def _abort(context: grpc.ServicerContext, refused: Refused) -> None:
    context.set_trailing_metadata(((ERROR_KEY, refused.kind),))
    context.abort(grpc.StatusCode[refused.status], str(refused))


def _of_one(inner: Any) -> Any:
    """A handler of one request, for a stream of them."""

    def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        if (request := next(requests, None)) is None:
            raise BadPush("This call takes one message; none came.")
        return inner(request, context)

    return handle

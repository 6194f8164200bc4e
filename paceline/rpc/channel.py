"""Calling a server: channels with sane settings, the token on every call, errors as the class they were."""

import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import grpc

from paceline.core.errors import (
    ConfigError,
    PacelineError,
    Stopped,
    TryAgain,
    Unauthenticated,
    error_classes,
)
from paceline.rpc.auth import HEADER, OPEN, Credentials, held
from paceline.rpc.tls import KeyFolder, key_folder, not_encrypted, untrusted

T = TypeVar("T")
ERROR_KEY = "paceline-error"
RENEWAL_KEY = "paceline-token-bin"
"""Metadata of a reply: what the caller's token file should hold from now on."""
_TRANSIENT = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "RESOURCE_EXHAUSTED")
CONNECT_MS = 5_000
"""How long a connection may take until its far side has answered. gRPC takes its least time between two tries for that, and
gives up a try that takes longer: with 100 ms a busy machine, or one a long way off with TLS, could not be reached."""
_OPTIONS = [
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC resolves names again only after a failure, and waits 30 s by default: too long for a restarted pod.
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Retries are the client's own, with the clock as key: gRPC's skip big calls in silence.
    ("grpc.enable_retries", 0),
    # No proxy knows this machine's own processes, and none is meant for training (http_proxy, https_proxy).
    ("grpc.enable_http_proxy", 0),
]


def open_channel(address: str, credentials: Credentials = OPEN) -> grpc.Channel:
    """A channel to one server; every call carries the token."""
    if credentials.tls is None:
        channel = grpc.insecure_channel(address, options=_OPTIONS)
        return grpc.intercept_channel(channel, _Token(credentials)) if credentials.token else channel
    renewing = cast(grpc.Channel, _Renewing(address, key_folder(credentials.tls)))
    return grpc.intercept_channel(renewing, _Token(credentials))


def translated(error: grpc.RpcError) -> PacelineError:
    """The exception that the far side raised; TryAgain for errors that may pass."""
    if not isinstance(error, grpc.Call):
        return error_of("", "UNKNOWN", str(error))
    kind = next((str(value) for key, value in error.trailing_metadata() or () if key == ERROR_KEY), "")
    return error_of(kind, error.code().name, str(error.details()))


def error_of(kind: str, status: str, text: str) -> PacelineError:
    """The exception behind a status that came over the wire; `kind`: its class, as `ERROR_KEY` says, '' where it does not."""
    if (known := error_classes().get(kind)) is not None:
        return known(text)
    if status == "UNAVAILABLE" and (error := _of_tls(text)) is not None:
        return error
    return (TryAgain if status in _TRANSIENT else PacelineError)(f"{status}: {text}")


def _of_tls(text: str) -> PacelineError | None:
    """What a user can do about grpcio's words on a handshake; None for other words."""
    if "handshake failed" in text and "WRONG_VERSION_NUMBER" in text:
        return ConfigError(not_encrypted(_address(text)))
    if "CERTIFICATE_VERIFY_FAILED" in text:
        words = text.partition("CERTIFICATE_VERIFY_FAILED: ")[2].partition(":")[0]
        return Unauthenticated(untrusted(_address(text), words))
    if "Hostname Verification" in text:
        return Unauthenticated(untrusted(_address(text), "it is made out to other names"))
    if text.endswith("Socket closed"):
        return TryAgain(
            f"UNAVAILABLE: {text}. If this does not stop, check that both sides have --tls, with certificates of "
            "one CA."
        )
    return None


def _address(text: str) -> str:
    """The address in grpcio's words."""
    return found[1] if (found := re.search(r"ipv[46]:(\S+?): ", text)) else "?"


def call(method: Callable[..., T], request: Any, timeout: float) -> T:
    """One unary call; raises what the far side raised."""
    try:
        return method(request, timeout=timeout)
    except grpc.RpcError as error:
        raise translated(error) from None


def waiting_call(method: Any, request: Any, timeout: float, stop: threading.Event) -> Any:
    """A unary call that the far side may let wait; Stopped as soon as this process must stop."""
    answer = method.future(request, timeout=timeout)
    done = threading.Event()
    answer.add_done_callback(lambda _: done.set())
    while not done.wait(0.25):
        if stop.is_set():
            answer.cancel()
            raise Stopped("The process got a signal to stop.")
    try:
        return answer.result()
    except grpc.RpcError as error:
        raise translated(error) from None


class _Renewing:
    """A channel that is opened again when the keys have changed; an interceptor asks it for a method at each call. Calls under
    way end on the old one."""

    def __init__(self, address: str, folder: KeyFolder) -> None:
        self._address = address
        self._folder = folder
        self._lock = threading.Lock()
        self._keys = folder.newest()
        self._channel = self._opened()

    def __getattr__(self, name: str) -> Any:
        """Of the channel as it is now."""
        with self._lock:
            if (keys := self._folder.newest()) is not self._keys:
                self._channel = self._opened()
                self._keys = keys
            return getattr(self._channel, name)

    def _opened(self) -> grpc.Channel:
        return grpc.secure_channel(self._address, self._folder.for_channel(), options=_OPTIONS)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Token(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """Adds the token to every call's metadata."""

    def __init__(self, credentials: Credentials) -> None:
        self._held = held(credentials)

    def _with_token(self, details: Any) -> _Details:
        shown = self._held.shown()
        metadata = [*(details.metadata or ()), *([(HEADER, shown)] if shown else ())]
        return _Details(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready, details.compression
        )

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        answer = go_on(self._with_token(details), request)
        answer.add_done_callback(self._renew)
        return answer

    def _renew(self, answer: Any) -> None:
        for key, value in answer.trailing_metadata() or ():
            if key == RENEWAL_KEY:
                self._held.take(value.decode(errors="replace"))

    def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(self._with_token(details), request)

    def intercept_stream_unary(self, go_on: Any, details: Any, requests: Any) -> Any:
        return go_on(self._with_token(details), requests)

    def intercept_stream_stream(self, go_on: Any, details: Any, requests: Any) -> Any:
        return go_on(self._with_token(details), requests)

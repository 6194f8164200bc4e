"""How a machine that joins finds the head, and makes sure that it is the right one."""

import socket
import ssl
from typing import Any, NamedTuple

import grpc

from paceline.core.errors import ConfigError, ServersGone, Unauthenticated, UsageError
from paceline.launch.other_machines.key import JoinKey, fingerprint_of
from paceline.rpc.auth import HEADER, bearer
from paceline.rpc.channel import CONNECT_MS
from paceline.rpc.listening import with_port

DOOR = "paceline-head"
"""The name in the door's certificate, whatever its address is."""
PATIENCE = 10.0
_OPTIONS = [
    ("grpc.ssl_target_name_override", DOOR),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.enable_http_proxy", 0),
]


class Head(NamedTuple):
    """The head that was found."""

    channel: grpc.Channel
    address: str
    """Its IP, as this machine reaches it."""


def address_of(text: str) -> tuple[str, int]:
    """'HOST:PORT' as two. UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(
            f"Got {text!r}; expected HOST:PORT as the run printed it, like 192.168.1.5:7077, or the file that "
            "`paceline k8s key` wrote; there is no such file here."
        )
    return host.strip("[]"), int(port)


def reach(host: str, port: int, key: JoinKey) -> Head:
    """A channel to the head, which has shown the certificate that the key names. ConfigError: the name is no machine's;
    ServersGone: nobody answers there; Unauthenticated: somebody else does."""
    found, certificate = _look(host, port)
    if fingerprint_of(certificate) != key.fingerprint:
        raise Unauthenticated(
            f"The program that listens at {_shown(host, port, found)} is not the run that this key belongs to. "
            "Either the key is from an older run (use the key that this run printed), or someone intercepts the "
            "connection."
        )
    pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
    credentials = grpc.ssl_channel_credentials(root_certificates=pem)
    return Head(grpc.secure_channel(with_port(found, port), credentials, options=_OPTIONS), found)


def metadata(key: JoinKey) -> Any:
    """What each call shows."""
    return ((HEADER, bearer(key.token)),)


def _look(host: str, port: int) -> tuple[str, bytes]:
    """The IP that answers, and the certificate that it shows (DER)."""
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ConfigError(
            f"This machine can't find a machine called {host!r} ({error.strerror or error}). Give the head's IP "
            "address instead."
        ) from error
    said = []
    for *_, place in known:
        try:
            with socket.create_connection((str(place[0]), port), PATIENCE) as plain:
                return str(place[0]), _certificate(plain, _shown(host, port, str(place[0])))
        except ssl.SSLError:
            raise
        except OSError as error:
            said.append(f"{place[0]} port {port}: {_words(error)}")
    raise ServersGone(
        f"No run answers at {host}:{port} (tried {'; '.join(dict.fromkeys(said))}). Is the run still training? "
        "Can this machine reach that address, and does the head's firewall allow the port "
        "(docs/run/several-machines.md)?"
    )


def _certificate(plain: socket.socket, shown: str) -> bytes:
    """Any certificate is accepted: the key says whether it is the right one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(plain) as wrapped:
            return wrapped.getpeercert(binary_form=True) or b""
    except (ssl.SSLError, ConnectionError, TimeoutError) as error:
        raise ConfigError(
            f"The program that listens at {shown} is not a run with --listen: {_words(error)}. Copy the address "
            "and the port from the line 'paceline join ...' that the run printed."
        ) from error


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _shown(host: str, port: int, found: str) -> str:
    return f"{host}:{port}" if host == found else f"{host}:{port} ({found})"

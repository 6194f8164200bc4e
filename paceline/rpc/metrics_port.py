"""Where Prometheus reads a process's metrics: open on this machine; elsewhere by TLS, and a token of a role that may look."""

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import prometheus_client
from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError, PacelineError, PermissionDenied
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.listening import LOOPBACK, listening_socket
from paceline.rpc.tls import KeyFolder, key_folder

PATIENCE = 10.0
"""Seconds for which a reader may say nothing."""


def open_metrics_port(
    port: int, registry: CollectorRegistry, host: str = LOOPBACK, guard: Credentials | None = None
) -> WSGIServer:
    """Answers from now on. `port` 0: any free one; `guard`: what the answers are encrypted and tokens are checked with; None:
    plain text for everybody. ConfigError: can't listen there."""
    try:
        if guard is None:
            return prometheus_client.start_http_server(port, host, registry)[0]
        return _guarded(port, registry, host, guard)
    except OSError as error:
        raise ConfigError(
            f"Can't listen on metrics port {port} of {host}: {error.strerror}. Choose another one."
        ) from error


def _guarded(port: int, registry: CollectorRegistry, host: str, guard: Credentials) -> WSGIServer:
    assert guard.tls is not None, "nothing to encrypt with"
    check, answer = authentication(guard), prometheus_client.make_wsgi_app(registry)

    def checked(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            check.check(environ.get("HTTP_AUTHORIZATION"), "Status")
        except PacelineError as error:
            status = "403 Forbidden" if isinstance(error, PermissionDenied) else "401 Unauthorized"
            start(status, [("Content-Type", "text/plain; charset=utf-8"), ("WWW-Authenticate", "Bearer")])
            return [f"{error}\n".encode()]
        return answer(environ, start)  # type: ignore[no-any-return]

    server = _Encrypted(host, port, key_folder(guard.tls))
    server.set_app(checked)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class _Encrypted(ThreadingMixIn, WSGIServer):
    """Shows the newest certificate to each reader, and asks for none. The handshake is in the reader's own thread."""

    daemon_threads = True

    def __init__(self, host: str, port: int, keys: KeyFolder) -> None:
        self._keys = keys
        super().__init__((host, port), _Silent, bind_and_activate=False)
        self.socket.close()
        self.socket = listening_socket(host, port, self.request_queue_size)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = host, self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        reader, address = super().get_request()
        reader.settimeout(PATIENCE)
        return self._keys.newest().web.wrap_socket(reader, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that speaks no TLS, or goes away, is none of our faults."""

"""`paceline serve`: answers by the newest model of a run, over HTTP, until a stop signal."""

import hmac
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError, DiskError, Unauthenticated, UsageError
from paceline.launch.folder.run_folder import write_secret_word
from paceline.results.model.run_weights import Source
from paceline.results.serving.batches import Batches
from paceline.results.serving.connections import LARGEST_HEADERS, Connection
from paceline.results.serving.follower import Follower
from paceline.results.serving.http_service import HttpService
from paceline.results.serving.metrics import ServeMetrics
from paceline.results.serving.served_model import ServedModel
from paceline.rpc.auth import Authentication, bearer
from paceline.rpc.listening import LOOPBACK, check_bind, is_loopback, listening_socket, with_port
from paceline.rpc.process import make_log, report_ports, serve_metrics, stop_on_signals
from paceline.rpc.roles import ANYONE, Caller
from paceline.rpc.tls import CERTIFICATE, KEY, key_folder
from paceline.rpc.token_file import read_token_file
from paceline.worker.training.model_and_gradient import use_threads

_WAITING = 64
"""Batches whose examples may wait at one time."""
_LOOK = 1.0
"""Time between two looks for newer keys (seconds)."""
_GRACE = 30.0
"""Longest time that requests under way get at the end (seconds)."""


class Serving(NamedTuple):
    """How a run is served."""

    host: str = LOOPBACK
    """Beyond this machine it takes keys, or the word that plain text will do."""
    plain_text: bool = False
    keys: Path | None = None
    """What is shown to callers from other machines; None: those of the run."""
    port: int = 8080
    metrics_port: int = 0
    reader_token: Path | None = None
    """None: the one in the run's folder, made if there is none."""
    best: bool = False
    device: str = "auto"
    window: float = 0.002
    """Time that a request waits for others (seconds)."""
    batch: int = 256
    """Most examples of a batch, and of a request."""
    every: float = 1.0
    """Time between two looks for a newer version (seconds)."""
    threads: int = 1
    report: Path | None = None


class ReaderToken(Authentication):
    """One token for all who may ask for predictions; it opens nothing else."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token).encode()

    def check(self, shown: str | None, method: str) -> Caller:
        if shown is None:
            raise Unauthenticated("The request carries no token. Send the reader's as `authorization: Bearer TOKEN`.")
        if not hmac.compare_digest(shown.encode(), self._expected):
            raise Unauthenticated(
                "The request carries a wrong token. The reader's token is in the file that serve named."
            )
        return ANYONE


def serve(source: Source, serving: Serving, tell: Callable[[str], None] = print) -> int:
    """Serves until SIGTERM or Ctrl-C; the exit code. ConfigError: a port is taken, or a kind of model that is not served;
    UsageError: beyond this machine without keys."""
    is_here = is_loopback(serving.host, "--host")
    keys = serving.keys or (None if is_here or serving.plain_text else _keys_of(source))
    check_bind(serving.host, keys is not None, serving.plain_text, "--host")
    token_file = _token_file(source, serving)
    authentication = ReaderToken(read_token_file(token_file).strip())
    use_threads(serving.threads)
    registry, say = CollectorRegistry(), make_log("serve")
    metrics, model = ServeMetrics(registry), ServedModel(source, serving.device)
    batches = Batches(model.apply, serving.window, serving.batch, _WAITING * serving.batch, metrics.batch)
    metrics.follow_waiting(batches.waiting)
    stop, signals = stop_on_signals()

    http = HttpService(source.name, model, batches, metrics, authentication)
    web, listening = _web(http, serving, keys)
    web_port = listening.getsockname()[1]
    guard = None if keys is None else replace(source.credentials, tls=keys)
    metrics_port = serve_metrics(serving.metrics_port, registry, serving.host, guard, run=source.name, process="serve")

    follower = Follower(source, model, metrics, say, serving.best)
    following = threading.Thread(target=follower.run, args=(stop, serving.every), name="follower", daemon=True)
    answering = threading.Thread(target=web.run, args=([listening],), name="http", daemon=True)
    answering.start()
    following.start()
    report_ports(serving.report, port=web_port, metrics_port=metrics_port)
    at, scheme = partial(with_port, serving.host), "http" if keys is None else "https"
    tell(
        f"serving run {source.name}: {scheme}://{at(web_port)}/v1/predict, metrics on port {metrics_port}. The reader's token "
        f"is in {token_file}"
    )
    stop.wait()
    say("stopping; requests under way get their answers")
    http.is_closing = True
    batches.hurry()
    web.should_exit = True
    answering.join(_GRACE)
    batches.close()
    say("stopped")
    return 130 if signal.SIGINT in signals else 0


def _keys_of(source: Source) -> Path | None:
    """Those of the run, where it still has them."""
    found = source.credentials.tls
    return found if found is not None and found.is_dir() else None


def _web(http: HttpService, serving: Serving, keys: Path | None) -> tuple[Any, socket.socket]:
    """The server of HTTP, and the socket that it takes."""
    try:
        listening = listening_socket(serving.host, serving.port, 1024)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Can't listen on HTTP port {serving.port} of {serving.host}: {getattr(error, 'strerror', None) or error}. Choose "
            "another one, or 0 for any free port."
        ) from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only where the protocol is named
    encrypted = {} if keys is None else {"ssl_certfile": keys / CERTIFICATE, "ssl_keyfile": keys / KEY}
    settings = uvicorn.Config(
        http.app,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(_GRACE),
        **encrypted,
    )
    settings.load()
    if keys is not None:
        threading.Thread(target=_renew, args=(settings.ssl, keys), name="renew", daemon=True).start()
    return uvicorn.Server(settings), listening


def _renew(context: ssl.SSLContext, keys: Path) -> None:
    """Shows newer keys to those who connect from then on."""
    folder = key_folder(keys)
    used = folder.newest()
    while True:
        time.sleep(_LOOK)
        if (newest := folder.newest()) is not used:
            with suppress(OSError):  # changed again meanwhile, and read again then
                context.load_cert_chain(keys / CERTIFICATE, keys / KEY)
                used = newest


def _token_file(source: Source, serving: Serving) -> Path:
    """The file of the reader's token, made where the run has none."""
    if serving.reader_token is not None:
        return serving.reader_token
    if source.place is None:
        raise UsageError("--servers needs --reader-token-file FILE: who may ask for predictions shows what it holds.")
    path = source.place.reader_token
    try:
        if not path.exists():
            write_secret_word(path)
    except OSError as error:
        raise DiskError(f"Can't write the reader's token to {path}: {error.strerror}.") from error
    return path

"""Gets a run's settings from its script: a server waits until a worker describes them, then saves them."""

import threading
from typing import Any

from paceline.base.private import make_private
from paceline.core.errors import ConfigError, Stopped
from paceline.core.settings.config import Config
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.host import Health, bind, make_server
from paceline.rpc.process import report_ports
from paceline.rpc.protocol_version import check_protocol
from paceline.rpc.roles import speak_for
from paceline.rpc.setting_values import settings_value
from paceline.server.command_line import ToldServer
from paceline.server.description import described, keep
from paceline.settings.load_settings import differences, load
from paceline.v1 import script_service_pb2 as pb
from paceline.v1.script_service_pb2_grpc import ScriptServiceServicer, add_ScriptServiceServicer_to_server

_TICK = 0.2
"""Time until the server notices a stop signal (seconds)."""
_THREADS = 16
_SEEDS = (
    " Give torch.manual_seed the same number in all of them, since in its steps each worker draws other numbers anyway, or "
    "--set seed=0 to the run."
)


class ScriptServicer(ScriptServiceServicer):
    """Takes the first description and compares all others with it. Thread-safe."""

    def __init__(self, told: ToldServer, is_ready: bool) -> None:
        """`is_ready`: whether the server serves its slice already."""
        self.description: dict[str, Any] = {}
        """The saved description, once `is_kept` is set."""
        self.is_kept = threading.Event()
        self._told = told
        self._is_ready = is_ready
        self._lock = threading.Lock()

    def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeReply:
        speak_for(request.worker)
        check_protocol(request.protocol, request.worker, f"server {self._told.index}")
        with self._lock:
            found = settings_value(request.settings)
            before = described(self._told.folder)
            if before is None:
                load(self._told.config, self._told.overrides(), found)  # ConfigError: these can't make a run
                keep(self._told.folder, found)
                self.description = found
                self.is_kept.set()
            elif differing := differences(before, found):
                advice = "" if before.get("seed") == found.get("seed") else _SEEDS
                raise ConfigError(
                    f"{request.worker}'s script asks for other settings than the first script did: "
                    f"{'; '.join(differing)}. All workers must run the same script with the same arguments; a run "
                    f"that is resumed goes on as it began.{advice}"
                )
        return pb.DescribeReply(ready=self._is_ready)


def await_description(told: ToldServer, credentials: Credentials, stop: threading.Event) -> tuple[Config, ToldServer]:
    """The run's settings, once a script has described them, and the server's arguments with the port that it listened on.
    Raises Stopped if the server has to stop before."""
    found = described(told.folder)
    if found is None:
        found, port = _listen(told, credentials, stop)
        told = told.model_copy(update={"port": port})
    return load(told.config, told.overrides(), found), told


def _listen(told: ToldServer, credentials: Credentials, stop: threading.Event) -> tuple[dict[str, Any], int]:
    """Answers descriptions until one is saved; returns it and the port. Raises Stopped."""
    make_private(told.folder)
    server = make_server(_THREADS, authentication(credentials), lambda method, status, seconds: None)
    servicer = ScriptServicer(told, is_ready=False)
    add_ScriptServiceServicer_to_server(servicer, server)
    port = bind(server, told.port, "gRPC", credentials.tls, told.bind)
    health = Health(told.health_port, told.bind)
    server.start()
    health.serving(True)
    report_ports(told.report, port=port, metrics_port=0, health_port=health.port)
    try:
        while not servicer.is_kept.wait(_TICK):
            if stop.is_set():
                raise Stopped("The server got a signal to stop before a script had described the run.")
    finally:
        server.stop(1.0).wait()
        health.stop()
    return servicer.description, port

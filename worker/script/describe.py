"""Tells every server what a script asks for, until all of them serve it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.core.errors import TryAgain
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import call, open_channel
from paceline.rpc.outages import Outage
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import retried
from paceline.rpc.setting_values import settings_message
from paceline.v1 import script_service_pb2 as pb
from paceline.v1.script_service_pb2_grpc import ScriptServiceStub


def describe(
    settings: Mapping[str, Any],
    worker: str,
    addresses: Sequence[str],
    credentials: Credentials,
    patience: float,
    stop: threading.Event,
    say: Callable[..., None],
) -> None:
    """Returns when all servers have built themselves by these settings. ConfigError: they make no run, or another worker has
    described another one. `patience`: longest time for each server (seconds)."""
    request = pb.DescribeRequest(worker=worker, settings=settings_message(settings), protocol=PROTOCOL)
    for address in addresses:
        channel = open_channel(address, credentials)
        stub = ScriptServiceStub(channel)

        def ask(stub: Any = stub) -> None:
            if not call(stub.Describe, request, 10.0).ready:
                raise TryAgain("The server still makes its slice of the model. Ask again.")

        try:
            retried(ask, patience, Outage(f"the server at {address}", say), stop, "Describe")
        finally:
            channel.close()

"""gRPC as Paceline uses it: its own remarks, and a far side that takes long to answer a new connection."""

import importlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import paceline.rpc
from paceline.rpc.channel import open_channel

PAUSE = 0.5
"""Seconds until the first bytes come back; longer than the first pause between two tries, which is 0.1."""


def copied(source: socket.socket, target: socket.socket, pause: float) -> None:
    """Hands on all that comes, after a pause."""
    time.sleep(pause)
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def slow_address() -> Iterator[str]:
    """Of a server without any method, behind a relay that takes one connection, and holds back what comes from the server."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(("127.0.0.1", port)) as onward,
        ThreadPoolExecutor(2) as threads,
    ):

        def relay() -> None:
            caller, _ = listener.accept()
            listener.close()  # a second try would be refused
            threads.submit(copied, caller, onward, 0)
            threads.submit(copied, onward, caller, PAUSE)

        thread = threading.Thread(target=relay)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        server.stop(0).wait()


def test_a_connection_that_is_answered_late_is_not_given_up(slow_address: str) -> None:
    with open_channel(slow_address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/any/Method")(b"", timeout=20)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED, "the call came to the server"


@pytest.mark.parametrize(("given", "found"), [(None, "ERROR"), ("DEBUG", "DEBUG")])
def test_grpc_tells_errors_alone_unless_the_user_asks_for_more(
    monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", given or "")
    if given is None:
        monkeypatch.delenv("GRPC_VERBOSITY")

    importlib.reload(paceline.rpc)

    assert os.environ["GRPC_VERBOSITY"] == found

"""gRPC's own remarks."""

import importlib
import os

import pytest

import paceline.rpc


@pytest.mark.parametrize(("given", "found"), [(None, "ERROR"), ("DEBUG", "DEBUG")])
def test_grpc_tells_errors_alone_unless_the_user_asks_for_more(
    monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", given or "")
    if given is None:
        monkeypatch.delenv("GRPC_VERBOSITY")

    importlib.reload(paceline.rpc)

    assert os.environ["GRPC_VERBOSITY"] == found

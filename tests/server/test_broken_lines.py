"""A push over a line that breaks: what has arrived counts, for this push and for no other one, on both transports."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import BadPush, TryAgain
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Vector
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.transport import Transport, encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.tensor_pb2 import Tensor
from paceline.worker.exchange import server_link
from paceline.worker.exchange.server_link import Link
from tests.support import in_process
from tests.support.breaking_line import BreakingLine
from tests.support.in_process import Cluster, config_of, seated

LENGTH = 2 << 20
"""8 MiB in 8 parts, each of which grpcio sends in 4 messages."""
PART = 1 << 20
MOST = 3 * PART
UPLOAD = 7
GRADIENT = np.random.default_rng(1).normal(size=LENGTH).astype(np.float32)


class Line:
    """A worker at the far end of a line that breaks after 3 MiB."""

    def __init__(self, cluster: Cluster) -> None:
        server, kind = cluster.servers[0], cluster.config.transport
        lane = server.lane
        port = server.port if lane is None else lane.port
        self.line = BreakingLine(port, MOST)
        self.pusher = seated(cluster)[0]
        self.plan = make_plan(in_process.SHAPES, 1, cluster.config.plan)
        far, near = (
            GrpcTransport(open_channel(f"localhost:{port}")) if kind == "grpc" else LaneTransport(f"localhost:{port}")
            for port in (self.line.port, port)
        )
        self.far: Transport = far
        self.near: Transport = near

    def link(self) -> Link:
        link = Link(0, self.far, self.pusher.around, self.plan)
        link.attach(self.pusher.incarnation)
        return link

    def push(self, way: Transport, values: Vector, **more: int) -> pb.PullHead:
        """One attempt to push."""
        facts = {"incarnation": self.pusher.incarnation, "clock": 1, "view": self.pusher.view, "upload": UPLOAD}
        facts |= {"elements": LENGTH, "examples": 1, "base_term": 1} | more
        head = pb.PushHead(worker=self.pusher.name, plan_hash=self.plan.hash, **facts)
        parts = list(encoded_parts(values, load_codec("none"), PART))
        return way.push(head, [part for part in parts if part[0] >= head.start], 30.0)

    def arrived(self, upload: int) -> int:
        """Elements of the upload that the server has."""
        request = pb.ResumeRequest(
            worker=self.pusher.name,
            incarnation=self.pusher.incarnation,
            tensors=[Tensor(name=name, shape=shape) for name, shape in in_process.SHAPES],
            plan_hash=self.plan.hash,
            protocol=PROTOCOL,
            upload=upload,
        )
        return self.near.resume(request, 30.0).arrived

    def breaks(self) -> int:
        """Pushes until the line breaks; returns how much has come."""
        with pytest.raises(TryAgain):
            self.push(self.far, GRADIENT)
        arrived = self.arrived(UPLOAD)
        assert 0 < arrived <= MOST // 4
        assert arrived % (PART // 16) == 0
        return arrived - arrived % (PART // 4)

    def weights(self) -> Vector:
        self.pusher.client.pull(self.pusher.model)
        return self.pusher.model


@pytest.fixture(params=["lane", "grpc"])
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(in_process, "SHAPES", (("weight", (LENGTH,)),))
    monkeypatch.setattr(in_process, "LENGTH", LENGTH)
    monkeypatch.setattr(server_link, "backoff", lambda: itertools.repeat(0.01))
    cluster = Cluster(config_of("asp", transport=request.param, part_bytes=PART), tmp_path)
    line = Line(cluster)
    yield line
    line.line.close()
    cluster.close()


def test_a_push_arrives_over_a_line_that_breaks_again_and_again(line: Line) -> None:
    link = line.link()
    link.push_pull(1, line.pusher.view, GRADIENT, 1, Base(1, 0), None)
    np.testing.assert_array_equal(line.weights(), -GRADIENT)
    assert 1 < link.retries < 2 * 4 * LENGTH / MOST


def test_first_weights_arrive_over_such_a_line(line: Line) -> None:
    line.link().initialise(line.pusher.model)
    assert 1 < line.line.connections < 2 * 4 * LENGTH / MOST


def test_no_other_push_goes_on_with_what_has_arrived(line: Line) -> None:
    start = line.breaks()
    others: list[dict[str, int]] = [{"clock": 2}, {"incarnation": 2}, {"upload": UPLOAD + 1}, {"examples": 2}]
    for other in others:
        with pytest.raises(TryAgain, match="has not kept what came before"):
            line.push(line.near, -GRADIENT, start=start, **other)
    line.push(line.near, GRADIENT, start=start)
    np.testing.assert_array_equal(line.weights(), -GRADIENT)


def test_an_attempt_that_begins_anew_needs_nothing_of_what_has_arrived(line: Line) -> None:
    start = line.breaks()
    line.push(line.near, 2 * GRADIENT, upload=UPLOAD + 1)
    np.testing.assert_array_equal(line.weights(), -2 * GRADIENT)
    assert line.arrived(UPLOAD) == 0
    with pytest.raises(TryAgain, match="has not kept what came before"):
        line.push(line.near, GRADIENT, clock=2, start=start)


def test_an_attempt_that_leaves_a_gap_is_refused(line: Line) -> None:
    start = line.breaks()
    with pytest.raises(TryAgain, match="has not kept what came before"):
        line.push(line.near, GRADIENT, start=LENGTH)
    with pytest.raises(BadPush, match="values"):
        line.push(line.near, GRADIENT[: LENGTH // 2], start=start)

"""One hostile caller, on both transports: training and heartbeats have threads that it can't take."""

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

from paceline.core.errors import Overloaded, PacelineError
from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials, held
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.shares import SHARE
from paceline.rpc.transport import Transport
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.in_process import SHAPES, Cluster, Pusher, config_of, seated

SECRET = "0123456789abcdef0123456789abcdef"
CALLS = 30
NEVER = 10**9
"""A version that does not come."""


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(config_of("asp", workers=2, transport=request.param), tmp_path, Credentials(SECRET))
    yield made
    made.close()


def transport(cluster: Cluster, credentials: Credentials) -> Transport:
    if cluster.config.transport == "grpc":
        return GrpcTransport(open_channel(cluster.addresses[0], credentials))
    assert cluster.servers[0].lane is not None
    return LaneTransport(f"localhost:{cluster.servers[0].lane.port}", credentials)


class Hostile:
    """A caller that asks at once, in many calls, for a version that never comes."""

    def __init__(self, cluster: Cluster, role: str, name: str) -> None:
        way = transport(cluster, Credentials(SECRET, role=role, name=name))
        plan = make_plan(SHAPES, 1, cluster.config.plan)
        self._request = pb.PullRequest(reader=name, plan_hash=plan.hash, version=NEVER)
        self.refusals: SimpleQueue[PacelineError] = SimpleQueue()
        for _ in range(CALLS):
            threading.Thread(target=self._pull, args=(way,), daemon=True).start()

    def _pull(self, way: Transport) -> None:
        try:
            way.pull(self._request, lambda head: None, 60.0)  # type: ignore[arg-type, return-value]
        except PacelineError as error:
            self.refusals.put(error)


def trains(pushers: list[Pusher]) -> None:
    """All are answered without a repeat."""
    for pusher in pushers:
        assert pusher.push(1.0)[0].outcome == pb.OUTCOME_FOLDED
        pusher.chief.beat(pusher.incarnation, pusher.clock, "compute", 0.0, {})
        assert not pusher.said, pusher.said


@pytest.mark.parametrize("cluster", ["lane", "grpc"], indirect=True)
@pytest.mark.parametrize(("role", "name"), [("reader", "plotter"), ("worker", "worker-7"), ("evaluator", "evaluator")])
def test_calls_that_wait_hold_up_nobody_and_are_refused_beyond_a_share(cluster: Cluster, role: str, name: str) -> None:
    pushers = seated(cluster)
    hostile = Hostile(cluster, role, name)
    refused = [hostile.refusals.get(timeout=60) for _ in range(CALLS - SHARE[role])]
    assert {type(error) for error in refused} == {Overloaded}
    assert all("Wait until one of them has ended" in str(error) for error in refused)
    trains(pushers)
    assert hostile.refusals.empty(), "the others wait for the version"


@pytest.mark.parametrize("cluster", ["grpc"], indirect=True)
def test_calls_whose_message_never_comes_are_refused_or_counted_before_it_is_waited_for(cluster: Cluster) -> None:
    pushers = seated(cluster)
    never = threading.Event()

    def nothing() -> Iterator[bytes]:
        never.wait(60)
        yield from ()

    def calls(method: str, credentials: Credentials | None) -> list[grpc.Call]:
        metadata = [] if credentials is None else [("authorization", held(credentials).shown())]
        return [channel.stream_stream(method)(nothing(), metadata=metadata, timeout=60) for _ in range(CALLS)]

    def codes(made: list[grpc.Call], count: int) -> set[grpc.StatusCode]:
        ended: SimpleQueue[grpc.StatusCode] = SimpleQueue()
        for one in made:
            one.add_done_callback(lambda call: ended.put(call.code()))
        return {ended.get(timeout=60) for _ in range(count)}

    with grpc.insecure_channel(cluster.addresses[0]) as channel:
        beats = "/paceline.v1.RunService/Heartbeat"
        assert codes(calls(beats, None), CALLS) == {grpc.StatusCode.UNAUTHENTICATED}
        plotter = Credentials(SECRET, role="reader", name="plotter")
        assert codes(calls(beats, plotter), CALLS) == {grpc.StatusCode.PERMISSION_DENIED}
        stalled = calls("/paceline.v1.RunService/Status", plotter)
        assert codes(stalled, CALLS - SHARE["reader"]) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        trains(pushers)
        for one in stalled:
            one.cancel()
        never.set()


@pytest.mark.parametrize("cluster", ["lane"], indirect=True)
def test_a_share_counts_calls_of_both_transports(cluster: Cluster) -> None:
    seated(cluster)
    plotter = Credentials(SECRET, role="reader", name="plotter")
    hostile = Hostile(cluster, "reader", "plotter")
    for _ in range(CALLS - SHARE["reader"]):
        hostile.refusals.get(timeout=60)
    other = GrpcTransport(open_channel(cluster.addresses[0], plotter))
    with pytest.raises(Overloaded, match="plotter"):
        other.pull(hostile._request, lambda head: None, 60.0)  # type: ignore[arg-type, return-value]

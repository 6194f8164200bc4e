"""What the lane tells Prometheus: bytes, parts, streams, stalls and early ends, counted exactly and on both ends."""

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.errors import TryAgain
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.rpc.auth import OPEN, Credentials
from paceline.rpc.lane import frames, server
from paceline.rpc.lane.call import parameter_routes
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.lane.frames import Code, Kind, Setting
from paceline.rpc.lane.messages import cut
from paceline.rpc.lane.traffic import Counts, Traffic
from paceline.rpc.outages import Outage
from paceline.rpc.retries import retried
from paceline.rpc.transport import Transport
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.parameter_client import ParameterClient
from tests.lane.test_lane import gives_up
from tests.support.fake_service import PART, SOON, Gathered, Served, Service, exchange, parts
from tests.support.in_process import SHAPES, Cluster, Pusher, Said, config_of
from tests.support.lane_peer import TOKEN, Lane, Peer, data, pull
from tests.support.processes import eventually

NO_WINDOW = frames.settings_frame({Setting.INITIAL_WINDOW_SIZE: 0})
ON_THE_WAY = ("sent_bytes_total", "sent_parts_total", "received_bytes_total", "received_parts_total")


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served("lane", Service(), threads=16)
    yield made
    made.stop()


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane()
    yield made
    made.close()


def value(traffic: Traffic, name: str, **labels: str) -> float | None:
    """As Prometheus gets it."""
    return value_in(registered(traffic), name, **labels)


def value_in(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"paceline_lane_{name}", labels)


def registered(traffic: Traffic) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(traffic)
    return registry


def reasons(traffic: Traffic, name: str) -> dict[tuple[str, str], float]:
    """(direction, code) -> how often, of those that were at all."""
    (family,) = [family for family in traffic.collect() if family.name == f"paceline_lane_{name}"]
    found = {(sample.labels["direction"], sample.labels["code"]): sample.value for sample in family.samples}
    return {reason: count for reason, count in found.items() if count}


def of_server(served: Served) -> Traffic:
    return served.lane.traffic


def on(served: Served) -> tuple[Transport, Traffic]:
    """A client and what it counts."""
    traffic = Traffic()
    return LaneTransport(served.address, OPEN, traffic), traffic


def bytes_of(head: bytes, values: Vector) -> int:
    """Of a stream of parts."""
    return sum(len(start) + len(part) for start, part in cut(head, parts(values)))


def carried(count: int, clock: int = 1) -> tuple[int, int, int]:
    """Bytes of a push, bytes of its reply, and parts of each."""
    values = np.zeros(count, np.float32)
    ask = pb.PushHead(worker="worker-0", clock=clock, elements=count).SerializeToString()
    answer = pb.PullHead(clock=clock, term=7, elements=count).SerializeToString()
    return bytes_of(ask, values), bytes_of(answer, values), -(-count // PART)


# what is carried
@pytest.mark.parametrize("count", [0, 1, 5000, 1 << 18, (1 << 20) + 3])
def test_both_ends_count_the_same_bytes_and_parts_of_an_exchange(served: Served, count: int) -> None:
    transport, mine = on(served)
    exchange(transport, np.zeros(count, np.float32))

    out, back, each = carried(count)
    assert [value(mine, name) for name in ON_THE_WAY] == [out, each, back, each]
    assert [value(of_server(served), name) for name in ON_THE_WAY] == [back, each, out, each]


def test_a_call_with_one_message_each_way_has_bytes_but_no_parts(served: Served) -> None:
    transport, mine = on(served)
    request = pb.ResumeRequest(worker="worker-0", clock=4)
    reply = transport.resume(request, SOON)

    out, back = 5 + request.ByteSize(), 5 + reply.ByteSize()
    assert [value(mine, name) for name in ON_THE_WAY] == [out, 0, back, 0]
    assert [value(of_server(served), name) for name in ON_THE_WAY] == [back, 0, out, 0]


def test_calls_side_by_side_lose_no_count(served: Served) -> None:
    transport, mine = on(served)
    sizes = [1 << 19, 1, 70_000, 0, 300_000, 5, 1 << 18, 20_000] * 4
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda place: exchange(transport, np.zeros(sizes[place], np.float32), place + 1), range(32)))

    each = [carried(size, place + 1) for place, size in enumerate(sizes)]
    out, back, number = (sum(column) for column in zip(*each, strict=True))
    assert [value(mine, name) for name in ON_THE_WAY] == [out, number, back, number]
    assert [value(of_server(served), name) for name in ON_THE_WAY] == [back, number, out, number]
    assert value(mine, "opened_streams_total") == value(of_server(served), "opened_streams_total") == len(sizes)


def test_what_was_carried_does_not_go_with_its_connection(served: Served) -> None:
    transport, mine = on(served)
    exchange(transport, np.zeros(5000, np.float32))
    transport.close()
    eventually(lambda: value(mine, "connections") == value(of_server(served), "connections") == 0)
    exchange(transport, np.zeros(5000, np.float32))

    out, back, _ = carried(5000)
    assert [value(mine, name) for name in ON_THE_WAY] == [2 * out, 2, 2 * back, 2]
    assert [value(of_server(served), name) for name in ON_THE_WAY] == [2 * back, 2, 2 * out, 2]


def test_a_call_counts_while_it_goes_on_and_once_when_it_is_over() -> None:
    traffic = Traffic()
    counts = traffic.call()
    counts.sent_bytes += 10
    assert (value(traffic, "sent_bytes_total"), value(traffic, "streams")) == (10, 1)
    counts.end()
    counts.end()
    assert (value(traffic, "sent_bytes_total"), value(traffic, "streams")) == (10, 0)
    assert value(traffic, "opened_streams_total") == 1


def test_streams_and_connections_are_there_as_long_as_calls_and_peers_are(lane: Lane) -> None:
    assert (value(lane.traffic, "connections"), value(lane.traffic, "streams")) == (0, 0)
    peers = [Peer(lane.port) for _ in range(3)]
    for peer in peers:
        peer.send(peer.headers(1), peer.headers(3))
        peer.answers_a_ping()
    assert (value(lane.traffic, "connections"), value(lane.traffic, "streams")) == (3, 6)
    assert value(lane.traffic, "opened_streams_total") == 6
    peers[0].send(frames.reset(1, Code.CANCEL))
    peers[0].answers_a_ping()
    assert value(lane.traffic, "streams") == 5
    for peer in peers:
        peer.close()
    lane.is_quiet()
    assert (value(lane.traffic, "connections"), value(lane.traffic, "streams")) == (0, 0)
    assert value(lane.traffic, "opened_streams_total") == 6


# stalls
def test_a_sender_that_waits_for_a_window_stalls_once_for_each_wait(lane: Lane) -> None:
    peer = Peer(lane.port)
    peer.send(NO_WINDOW, peer.headers(name="Pull"), data(1, pull(), end=True))
    eventually(lambda: value(lane.traffic, "stalls_total") == 1)
    peer.send(frames.window_update(1, 10))
    assert len(peer.next(Kind.DATA)[3]) == 10
    eventually(lambda: value(lane.traffic, "stalls_total") == 2)
    peer.send(frames.window_update(1, 1 << 20))
    assert peer.trailers()["grpc-status"] == "0"
    assert value(lane.traffic, "stalls_total") == 2
    assert value(lane.traffic, "stalled_seconds_total") > 0  # type: ignore[operator]
    peer.close()


def test_a_wait_that_is_woken_for_nothing_is_still_the_same_stall() -> None:
    counts, room = Counts(), threading.Condition()
    with room:
        for _ in range(5):
            counts.wait(room, 0)
        counts.sent_bytes += 1
        counts.wait(room, 0)
    assert counts.stalls == 2


def test_a_sender_with_room_never_stalls(lane: Lane) -> None:
    lane.serves()
    assert (value(lane.traffic, "stalls_total"), value(lane.traffic, "stalled_seconds_total")) == (0, 0)


# early ends; test_attacks.py counts those of which the server is the cause
@pytest.mark.parametrize(
    ("reset", "code"),
    [(frames.reset(1, Code.CANCEL), "CANCEL"), (frames.frame(Kind.RST_STREAM, 0, 1, b"\xde\xad\xbe\xef"), "other")],
    ids=["a cancelled call", "a code that nobody knows"],
)
def test_a_stream_that_ends_early_is_counted_by_side_and_reason(lane: Lane, reset: bytes, code: str) -> None:
    peer = Peer(lane.port)
    peer.send(peer.headers() + reset)
    peer.answers_a_ping()
    assert reasons(lane.traffic, "resets") == {("received", code): 1}
    assert reasons(lane.traffic, "cut_offs") == {}
    peer.close()


def test_a_client_that_is_turned_away_and_the_server_count_the_same_cut_off_and_it_may_try_again(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 0)
    mine = Traffic()
    transport = LaneTransport(f"localhost:{lane.port}", Credentials(TOKEN), mine)

    def resume() -> pb.ResumeReply:
        return transport.resume(pb.ResumeRequest(clock=3), SOON)

    with pytest.raises(TryAgain):
        resume()
    assert reasons(lane.traffic, "cut_offs") == {("sent", "ENHANCE_YOUR_CALM"): 1}
    eventually(lambda: reasons(mine, "cut_offs") == {("received", "ENHANCE_YOUR_CALM"): 1})
    monkeypatch.setattr(server, "CONNECTIONS", 8)
    # again while the client has not seen the first connection's end
    assert retried(resume, 20, Outage("the server", Said()), threading.Event()).clock == 3
    transport.close()


def test_a_caller_that_gives_up_is_counted_on_both_ends(served: Served) -> None:
    service, (transport, mine) = Service(), on(served)
    served.lane._routes = parameter_routes(service)
    exchange(transport, np.zeros(10, np.float32))  # connects
    calls = gives_up(
        service, "pull", lambda timeout: transport.pull(pb.PullRequest(version=1), lambda head: Gathered(), timeout)
    )
    assert reasons(mine, "resets") == {("sent", "CANCEL"): calls}
    eventually(lambda: reasons(of_server(served), "resets") == {("received", "CANCEL"): calls})
    eventually(lambda: value(mine, "streams") == value(of_server(served), "streams") == 0)


def test_a_server_that_drains_cuts_nobody_off(served: Served) -> None:
    transport, mine = on(served)
    exchange(transport, np.zeros(10, np.float32))
    served.stop()
    eventually(lambda: value(mine, "connections") == 0)
    assert reasons(mine, "cut_offs") == reasons(of_server(served), "cut_offs") == {}


def test_reasons_that_are_usual_begin_at_0() -> None:
    traffic = Traffic()
    assert value(traffic, "resets_total", direction="sent", code="REFUSED_STREAM") == 0
    assert value(traffic, "cut_offs_total", direction="sent", code="ENHANCE_YOUR_CALM") == 0


# whole processes
def test_a_run_on_the_lane_has_the_metrics_on_servers_and_workers(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    cluster = Cluster(config_of("asp", workers=1, epochs=100, transport="lane"), tmp_path)
    cluster.evaluator_ready()
    pusher = Pusher(cluster)
    plan = make_plan(SHAPES, 1, cluster.config.plan)
    around = dataclasses.replace(pusher.around, patience=SOON)
    pusher.client = ParameterClient(around, plan, registry=registry)
    pusher.join().sit().push(1.0)

    others = cluster.servers[0].registry
    # parts: the first weights and a push there; a pull's and a reply's back
    assert value_in(registry, "sent_parts_total") == value_in(others, "received_parts_total") == 2
    assert value_in(registry, "received_parts_total") == value_in(others, "sent_parts_total") == 2
    assert value_in(registry, "sent_bytes_total") == value_in(others, "received_bytes_total")
    assert value_in(registry, "connections") == value_in(others, "connections") == 1
    info = {"policy": "asp", "task": cluster.config.task, "transport": "lane"}
    assert others.get_sample_value("paceline_run_info", info) == 1
    cluster.close()


def test_a_run_on_grpc_has_none_of_them(tmp_path: Path) -> None:
    cluster = Cluster(config_of("asp", workers=1, epochs=100, transport="grpc"), tmp_path)
    names = {family.name for family in cluster.servers[0].registry.collect()}
    assert [name for name in names if name.startswith("paceline_lane_")] == []
    cluster.close()


def test_names_say_what_is_counted_and_labels_are_few() -> None:
    traffic = Traffic()
    for code in range(100):
        for direction in ("sent", "received"):
            traffic.reset(direction, code)
            traffic.cut_off(direction, code)
    families = list(traffic.collect())
    gauges = {family.name for family in families if family.type != "counter"}
    assert gauges == {"paceline_lane_streams", "paceline_lane_connections"}
    assert all(family.name.startswith("paceline_lane_") and family.documentation for family in families)
    assert sum(len(family.samples) for family in families) <= 60
    assert value(traffic, "resets_total", direction="sent", code="other") == 100 - len(Code)

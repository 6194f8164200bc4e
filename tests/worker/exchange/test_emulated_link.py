"""Emulated links and slow workers, in virtual time: what a worker waits for."""

import numpy as np
import pytest

from paceline.core.codecs.codec import load_codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.fault import faults_of
from paceline.core.slice.plan import Range
from paceline.rpc.transport import OpenSink, Parts, encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.emulated_link import EmulatedLink, LinkedTransport
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.training.emulated_slowness import Slowness


class Made:
    """A link whose pauses pass at once on its own clock, unless it stands still."""

    def __init__(self, *texts: str, stands: bool = False) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.stands = stands
        self.link = EmulatedLink(faults_of(texts, "worker-1"), self.pause, lambda: self.now)

    def pause(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.now += 0.0 if self.stands else seconds


def test_a_message_waits_for_latency_and_bandwidth() -> None:
    made = Made("link worker-1=8Mbit,50ms", "kill worker-1@3s")
    made.link.carry("out", 1_000_000)
    made.link.carry("in", 0)

    assert made.pauses == [1.05, 0.05]
    assert made.link.waited == pytest.approx(1.1)


def test_messages_to_two_servers_share_the_bandwidth_but_directions_do_not() -> None:
    made = Made("link worker-1=8Mbit", stands=True)
    made.link.carry("out", 1_000_000)
    made.link.carry("out", 1_000_000)
    made.link.carry("in", 1_000_000)

    assert made.pauses == [1.0, 2.0, 1.0]
    assert made.link.waited == 2.0


def test_a_link_of_another_worker_costs_nothing() -> None:
    assert not Made("link worker-2=8Mbit", "kill worker-1@3s").link
    assert Made("link worker-1=8Mbit").link


def test_a_window_follows_the_time_of_the_run() -> None:
    made = Made("link worker-1=8Mbit@10s:5s")
    waits = []
    for seconds in (9.0, 9.5, 10.0, 14.5, 15.0):
        made.link.hear(seconds)
        made.link.carry("out", 1000)
        waits.append(len(made.pauses))
        made.now += 0.001

    assert waits == [0, 0, 1, 2, 2]


class Way:
    """A server that takes all parts, and answers with 250 weights; it notes when each part has come."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self.came: list[tuple[int, float]] = []

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        self.came += [(offset, round(self._made.now - 100.0, 6)) for offset, _ in parts]
        return pb.PullHead(codec="none", elements=250)

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        head = pb.PullHead(codec="none", elements=250)
        sink = open_sink(head)
        for offset, data in encoded_parts(np.ones(250, np.float32), load_codec("none"), 400):
            sink.take(offset, data)
        return head

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        self.push(head, parts, timeout)
        return self.pull(pb.PullRequest(), open_sink, timeout)


def test_pushes_and_pulls_cross_the_link_with_all_their_bytes() -> None:
    made = Made("link worker-1=8Mbit,50ms")
    way = LinkedTransport(Way(made), made.link)  # type: ignore[arg-type]
    parts = list(encoded_parts(np.zeros(500, np.float32), load_codec("none"), 1000))
    weights = np.zeros(250, np.float32)

    def open_sink(head: pb.PullHead) -> SliceSink:
        return SliceSink(weights, (Range(0, 250),), SliceCodec(load_codec("none"), 250))

    ends = []
    for call in (
        lambda: way.push_pull(pb.PushHead(), parts, open_sink, 1.0),
        lambda: way.push(pb.PushHead(), parts, 1.0),
        lambda: way.push(pb.PushHead(), [], 1.0),
        lambda: way.pull(pb.PullRequest(), open_sink, 1.0),
    ):
        began = made.now
        call()
        ends.append(round(made.now - began, 6))
    assert ends == [0.103, 0.102, 0.1, 0.101]  # two latencies, and a millisecond for each 1,000 bytes
    assert (weights == 1.0).all()


@pytest.mark.parametrize(("codec", "pieces"), [("none", 4), ("topk", 1)])
def test_a_push_goes_out_in_pieces_while_the_server_holds_what_has_come(codec: str, pieces: int) -> None:
    made = Made("link worker-1=8Mbit,50ms")
    server, part = Way(made), memoryview(bytes(1 << 20))
    LinkedTransport(server, made.link).push(pb.PushHead(codec=codec), [(0, part)], 1.0)  # type: ignore[arg-type]
    each = (1 << 20) / pieces
    assert server.came == [
        (int(number * each / 4), round((number + 1) * each / 1e6 + 0.05, 6)) for number in range(pieces)
    ]


def test_a_piece_that_takes_long_ends_no_stream_and_is_waited_for_after_it() -> None:
    made = Made("link worker-1=8kbit")
    server = Way(made)
    parts = [(0, memoryview(bytes(25_000)))]
    LinkedTransport(server, made.link).push(pb.PushHead(codec="none"), parts, 1.0)  # type: ignore[arg-type]
    assert made.pauses == [10.0, 15.0, 0.0]


def pauses(settings: dict[str, str], place: int, clocks: int = 4, share: float = 1.0, seed: int = 0) -> list[float]:
    found: list[float] = []
    slowness = Slowness(settings, place, 0.02, seed, found.append)
    for clock in range(1, clocks + 1):
        slowness.delay(clock, share)
    return found


def test_a_worker_10_times_as_slow_pauses_9_nominal_steps() -> None:
    assert pauses({"1": "10x"}, place=1, clocks=2) == [9 * 0.02] * 2
    assert pauses({"1": "10x"}, place=0) == []


def test_a_smaller_part_of_a_mini_batch_takes_as_much_less() -> None:
    assert pauses({"1": "11x"}, place=1, clocks=1, share=0.25) == [0.25 * 10 * 0.02]


def test_random_steps_are_slow_as_often_as_asked_and_the_same_ones_in_every_run() -> None:
    found = pauses({"all": "3x@25%"}, place=2, clocks=400)
    assert 60 < len(found) < 140
    assert set(found) == {2 * 0.02}
    assert found == pauses({"all": "3x@25%"}, place=2, clocks=400)
    assert len(found) != len(pauses({"all": "3x@25%"}, place=3, clocks=400))


def test_two_rules_for_one_worker_add_up() -> None:
    assert pauses({"all": "2x", "0": "3x"}, place=0, clocks=1) == [(1 + 2) * 0.02]

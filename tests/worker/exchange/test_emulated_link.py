"""Emulated links and slow workers, in virtual time: what a worker waits for."""

from typing import Any

import numpy as np
import pytest

from paceline.core.codecs.codec import load_codec
from paceline.core.fault import faults_of
from paceline.rpc.transport import encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.emulated_link import EmulatedLink, LinkedTransport
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


def test_pushes_and_pulls_cross_the_link_with_all_their_bytes() -> None:
    made = Made("link worker-1=8Mbit")
    codec = load_codec("none")

    class Way:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: pb.PullHead(codec="none", elements=250)

    way = LinkedTransport(Way(), made.link)  # type: ignore[arg-type]
    parts = list(encoded_parts(np.zeros(500, np.float32), codec, 4096))
    way.push_pull(pb.PushHead(), parts, None, 1.0)  # type: ignore[arg-type]
    way.push(pb.PushHead(), iter(parts), 1.0)
    way.pull(pb.PullRequest(), None, 1.0)  # type: ignore[arg-type]

    assert made.pauses == [0.002, 0.001, 0.002, 0.0, 0.0, 0.001]


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

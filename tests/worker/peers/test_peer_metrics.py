"""What a worker of a run without servers counts: members, bytes, what waits, what fails."""

from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.codecs.codec import load_codec
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.topology import build_topology
from paceline.core.policies.policy import Own
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials
from paceline.v1.run_service_pb2 import Peer
from tests.support.in_process import SHAPES, Said
from tests.support.processes import TOKEN, eventually

peer = pytest.importorskip("paceline.worker.peers.peer_server")
peers = pytest.importorskip("paceline.worker.peers.other_workers")
PeerMetrics = pytest.importorskip("paceline.worker.peers.peer_messages").PeerMetrics
PLAN = make_plan(SHAPES, 0, PlanConfig())
MODEL = 2 * PLAN.total
"""Bytes of a model as bf16."""


class Member:
    """A worker's end, and what Prometheus sees of it."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.registry = CollectorRegistry()
        shown, metrics = Credentials(TOKEN), PeerMetrics(self.registry)
        self.peers = peers.Peers(f"worker-{rank}", shown, "lane", PLAN, load_codec("bf16"), 64, Said(), metrics)
        self.server = peer.PeerServer(PLAN, 64, shown, 0, "lane", self.peers, 8)

    def message(self) -> Peer:
        return Peer(worker=f"worker-{self.rank}", incarnation=1, address=f"127.0.0.1:{self.server.port}")

    def begin(self, policy: str) -> None:
        plain = build_optimizer(Options(name="sgd", lr=0.5, momentum=0.0, weight_decay=0.0))
        own = Own(np.zeros(PLAN.total, np.float32), plain, 0.5)
        built = build_peer_policy(Options(name=policy)), build_topology(Options(name="ring"))
        self.peers.begin(1, *built, own, self.rank, True, lambda: None)

    def count(self, name: str) -> float:
        found = self.registry.get_sample_value(f"paceline_worker_{name}")
        assert found is not None
        return found

    def close(self) -> None:
        self.peers.end()
        self.server.close()


@pytest.fixture
def pair() -> Iterator[tuple[Member, Member]]:
    """Two that know each other."""
    found = Member(0), Member(1)
    for one in found:
        one.peers.heard(1, [other.message() for other in found])
    yield found
    for one in found:
        one.close()


def test_an_exchange_of_models_counts_at_both_ends_as_on_the_wire(pair: tuple[Member, Member]) -> None:
    passive, active = pair
    passive.begin("adpsgd")
    active.begin("adpsgd")
    active.peers.start_step(np.zeros(PLAN.total, np.float32))
    active.peers.end_step(np.ones(PLAN.total, np.float32), lambda: None)
    eventually(lambda: passive.count("peer_sent_bytes_total") == MODEL, "the answer was not counted")
    for one in pair:
        assert one.count("peer_sent_bytes_total") == one.count("peer_received_bytes_total") == MODEL
        assert one.peers.traffic == (MODEL, MODEL)
        assert (one.count("members"), one.count("queue_depth"), one.count("peer_retries_total")) == (2, 0, 0)


def test_messages_to_one_who_does_not_take_them_wait_and_are_sent_again(pair: tuple[Member, Member]) -> None:
    away, sender = pair
    away.server.close()
    sender.begin("dpsgd")
    sender.peers.start_step(np.zeros(PLAN.total, np.float32))
    eventually(lambda: sender.count("peer_retries_total") >= 2, "no try was repeated")
    assert sender.count("peer_sent_bytes_total") == 0


def test_who_has_left_is_no_member_any_more(pair: tuple[Member, Member]) -> None:
    stays, _ = pair
    stays.peers.heard(2, [stays.message()])
    assert stays.count("members") == 1

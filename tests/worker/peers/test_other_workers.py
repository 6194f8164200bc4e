"""Workers without servers: messages between them, who joins and who leaves, what is refused, and what they count."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import (
    BadPush,
    DataError,
    NotYet,
    PacelineError,
    PlanMismatch,
    Stopped,
    Unauthenticated,
    VersionGone,
)
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.topology import build_topology
from paceline.core.policies.policy import Own
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials
from paceline.rpc.transport import encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.run_service_pb2 import Peer
from tests.support.in_process import SHAPES, Said
from tests.support.ports import own_port
from tests.support.processes import TOKEN, eventually

peer = pytest.importorskip("paceline.worker.peers.peer_server")
peers = pytest.importorskip("paceline.worker.peers.other_workers")
PeerMetrics = pytest.importorskip("paceline.worker.peers.peer_messages").PeerMetrics
PLAN = make_plan(SHAPES, 0, PlanConfig())
PLAIN = build_optimizer(Options(name="sgd", lr=0.5, momentum=0.0, weight_decay=0.0))
SOON = 20.0
USUAL = 8
"""Examples of a mini-batch."""


class Member:
    """A worker without its own training loop: a policy, its lines and its server."""

    def __init__(self, rank: int, kind: str, start: float, incarnation: int = 1, codec: str = "none") -> None:
        self.name = f"worker-{rank}"
        self.rank = rank
        self.incarnation = incarnation
        self.said = Said()
        self.registry = CollectorRegistry()
        shown, metrics = Credentials(TOKEN), PeerMetrics(self.registry)
        self.peers = peers.Peers(self.name, shown, kind, PLAN, load_codec(codec), 64, self.said, metrics)
        self.server = peer.PeerServer(PLAN, 64, Credentials(TOKEN), own_port(), kind, self.peers, 8)
        self.address = f"127.0.0.1:{self.server.port}"
        self.own = Own(np.full(PLAN.total, start, np.float32), PLAIN, 0.5)
        self.own.slots = PLAIN.new_slots(PLAN.total)

    def message(self) -> Peer:
        return Peer(worker=self.name, incarnation=self.incarnation, address=self.address)

    def begin(
        self,
        policy: str,
        topology: str = "ring",
        begins: bool = True,
        check: Callable[[], None] = lambda: None,
        is_founder: bool = False,
    ) -> None:
        built = build_peer_policy(Options(name=policy)), build_topology(Options(name=topology))
        self.peers.begin(self.incarnation, *built, self.own, self.rank, begins, check, USUAL, is_founder)

    def step(self, gradient: float, lr: float = 0.5, examples: int = 8) -> Vector:
        """A whole step; the weights that the gradient was taken at. `lr`: of the next one."""
        seen = np.zeros(PLAN.total, np.float32)
        self.peers.start_step(seen)
        self.peers.end_step(np.full(PLAN.total, gradient, np.float32), lambda: None, examples)
        self.peers.take_rate(lr)
        return seen

    def count(self, name: str) -> float | None:
        """What Prometheus sees."""
        return self.registry.get_sample_value(f"paceline_worker_{name}")

    def close(self) -> None:
        self.peers.end()
        self.server.close()


@pytest.fixture
def member(kind: str) -> Iterator[Callable[..., Member]]:
    """Makes members on one transport; they are ended with the test."""
    made: list[Member] = []

    def make(rank: int, start: float = 0.0, incarnation: int = 1, codec: str = "none") -> Member:
        made.append(Member(rank, kind, start, incarnation, codec))
        return made[-1]

    yield make
    for one in made:
        one.close()


def told(view: int, *members: Member) -> None:
    """The chief's newest view reaches all of them."""
    for one in members:
        one.peers.heard(view, [other.message() for other in members])


def begun(policy: str, *members: Member, topology: str = "ring") -> None:
    """They know one another, and begin."""
    told(1, *members)
    for one in members:
        one.begin(policy, topology)


def side_by_side(*works: Callable[[], Any]) -> None:
    """All at the same time; the first error of any."""
    failed: list[BaseException] = []

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive(), "a member waits forever"
    if failed:
        raise failed[0]


# steps
def test_two_members_average_their_models_while_one_computes(member: Callable[..., Member]) -> None:
    passive, active = member(0, 1.0), member(1, 3.0)
    begun("adpsgd", passive, active)
    seen = active.step(1.0)
    assert (seen[0], passive.own.local[0], active.own.local[0]) == (3.0, 2.0, 1.5)  # worked out


@pytest.mark.parametrize("policy", ["allreduce", "dpsgd"])
def test_three_in_lock_step_keep_the_mean_of_their_gradients(member: Callable[..., Member], policy: str) -> None:
    members = [member(rank) for rank in range(3)]
    begun(policy, *members)
    for _ in range(5):
        side_by_side(*(lambda one=one: one.step(float(one.rank)) for one in members))  # type: ignore[misc]
    mean = np.mean([one.own.local for one in members], axis=0)
    assert mean == pytest.approx(np.full(PLAN.total, -2.5), abs=1e-5)  # 5 steps of rate .5 and mean gradient 1


def test_a_broadcast_reaches_everybody(member: Callable[..., Member]) -> None:
    members = [member(rank) for rank in range(3)]
    begun("broadcast", *members, topology="complete")
    members[0].step(2.0)
    eventually(lambda: all(one.own.local[0] == -1.0 for one in members), lambda: str([m.own.local[0] for m in members]))


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_models_may_travel_rounded(member: Callable[..., Member], codec: str) -> None:
    members = [member(rank, 2.0 * rank, codec=codec) for rank in range(2)]
    told(1, *members)
    for one in members:
        one.own.local += np.arange(PLAN.total)  # so that one part can't be taken for another
        one.begin("dpsgd")
    side_by_side(*(lambda one=one: one.step(0.0) for one in members))  # type: ignore[misc]
    assert all(one.own.local == pytest.approx(1.0 + np.arange(PLAN.total), abs=0.2) for one in members)


@pytest.mark.parametrize("codec", ["fp16", "bf16"])
def test_sums_may_travel_rounded_and_are_the_same_for_all(member: Callable[..., Member], codec: str) -> None:
    members = [member(rank, codec=codec) for rank in range(3)]
    told(1, *members)
    gradients = [np.arange(PLAN.total, dtype=np.float32) / (rank + 7) for rank in range(3)]
    for one in members:
        one.begin("allreduce")
        one.peers.start_step(np.zeros(PLAN.total, np.float32))
    ends = (lambda one=one: one.peers.end_step(gradients[one.rank], lambda: None) for one in members)
    side_by_side(*ends)  # type: ignore[misc]
    first = members[0].own.local
    assert all(bytes(one.own.local) == bytes(first) for one in members)
    assert first == pytest.approx(-0.5 * np.mean(gradients, axis=0), rel=2e-2)


def test_vectors_of_a_round_are_used_again_as_soon_as_they_have_been_sent(member: Callable[..., Member]) -> None:
    members = [member(rank) for rank in range(2)]
    begun("allreduce", *members)
    gc.disable()  # what is kept in a ring of references would be found at some time
    try:
        for _ in range(20):
            side_by_side(*(lambda one=one: one.step(1.0) for one in members))  # type: ignore[misc]
    finally:
        gc.enable()
    assert all(len(one.peers._policy._buffers._idle) <= 6 for one in members)


def test_a_gradient_counts_by_its_examples(member: Callable[..., Member]) -> None:
    members = [member(rank) for rank in range(3)]
    begun("allreduce", *members)

    side_by_side(*(lambda one=one: one.step(float(one.rank), 0.5, (4, 4, 8)[one.rank]) for one in members))  # type: ignore[misc]

    assert {one.own.local[0] for one in members} == {-0.5 * (0 * 4 + 1 * 4 + 2 * 8) / 16}


# the first weights
def test_founders_begin_with_the_weights_of_the_first_one(member: Callable[..., Member]) -> None:
    members = [member(rank, start=float(rank)) for rank in range(3)]
    told(1, *members)
    founders = [one.message() for one in members]
    assert [one.peers.is_first(one.incarnation, founders) for one in members] == [True, False, False]

    side_by_side(*(lambda one=one: one.begin("allreduce", begins=one.rank == 0, is_founder=True) for one in members))  # type: ignore[misc]
    side_by_side(*(lambda one=one: one.step(1.0) for one in members))  # type: ignore[misc]

    assert {one.own.local[0] for one in members} == {-0.5}


def test_founders_that_come_later_begin_with_the_first_weights_and_not_with_what_became_of_them(
    member: Callable[..., Member],
) -> None:
    first, second, third = (member(rank, start) for rank, start in enumerate((1.0, 1.0, 7.0)))
    told(1, first, second, third)
    first.begin("broadcast", is_founder=True)
    first.step(1.0)
    assert first.own.local[0] == 0.5

    second.begin("broadcast", begins=False, is_founder=True)
    assert first.peers._first is not None
    third.begin("broadcast", begins=False, is_founder=True)

    eventually(lambda: second.own.local[0] == third.own.local[0] == 0.5, "both have the update, once")
    eventually(lambda: first.peers._first is None, "all have the first weights")
    assert [one.peers._policy.round for one in (first, second, third)] == [1, 0, 0]


def test_equal_first_weights_are_not_sent(member: Callable[..., Member]) -> None:
    first, second, third = (member(rank, start) for rank, start in enumerate((1.0, 1.0, 7.0)))
    told(1, first, second, third)
    first.begin("gosgd", is_founder=True)

    def received(one: Member) -> int:
        digest = sha256(one.own.local).digest()
        found = one.peers._welcome_of(first.address, 1, digest)
        return 0 if found is None else len(found.model)

    assert (received(second), received(third)) == (0, PLAN.total)


def test_who_joins_waits_for_founders_that_have_yet_to_begin(member: Callable[..., Member]) -> None:
    founder, late = member(0, 3.0), member(1, 77.0)
    told(1, founder, late)
    founder.peers._is_joining = founder.peers._is_founder = True

    with pytest.raises(NotYet, match="worker-0 has yet to begin"):
        late.peers._welcome_of(founder.address, 1, b"")
    with pytest.raises(VersionGone, match="does not have a model yet"):
        late.peers._welcome_of(founder.address, 1, b"another founder")


def test_without_the_first_one_they_begin_with_those_of_the_next(member: Callable[..., Member]) -> None:
    gone, second, third = (member(rank, start=float(rank)) for rank in range(3))
    told(1, gone, second, third)
    gone.close()
    told(2, second, third)

    side_by_side(*(lambda one=one: one.begin("allreduce", begins=False, is_founder=True) for one in (second, third)))  # type: ignore[misc]

    assert [one.own.local[0] for one in (second, third)] == [1.0, 1.0]


def test_who_can_not_reach_another_says_so(member: Callable[..., Member]) -> None:
    here, away = member(0), member(1)
    told(1, here, away)
    here.begin("allreduce")
    away.server.close()
    here.peers.start_step(np.zeros(PLAN.total, np.float32))

    def check() -> None:
        if here.said.has("a message to worker-1 keeps failing"):
            raise Stopped("seen")

    with pytest.raises(Stopped, match="seen"):
        here.peers.end_step(np.zeros(PLAN.total, np.float32), check)


def test_a_step_goes_on_without_an_answer_once_nothing_moves_between_the_two(
    pair: tuple[Member, Member], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_PATIENCE", 0.0)
    silent, asker = pair
    told(1, *pair)
    asker.begin("adpsgd")
    head = pb.PushHead(worker=silent.name, incarnation=1, clock=1, plan_hash=PLAN.hash, elements=PLAN.total)
    head.note.MergeFrom(pb.PeerNote(kind="PEER_MESSAGE_KIND_ASK", view=1, round=1, weight=1.0, to=1))
    looks = iter(range(100))
    with ExitStack() as coming:
        coming.enter_context(asker.peers.taking(head, lambda: True))

        def check() -> None:
            assert not asker.said.has("does not answer"), "a message was just coming"
            if next(looks) == 2:
                coming.close()

        asker.peers.start_step(np.zeros(PLAN.total, np.float32))
        asker.peers.end_step(None, check)
    assert next(looks) > 2
    assert ("a worker does not answer; the step goes on without it", {"worker": silent.name}) in asker.said


# coming and going
def test_nobody_waits_for_a_member_that_has_left(member: Callable[..., Member]) -> None:
    first, second, gone = (member(rank) for rank in range(3))
    begun("allreduce", first, second, gone)
    gone.close()

    def leave() -> None:
        eventually(lambda: all(one.peers._policy.waits_for() for one in (first, second)), "both wait")
        told(2, first, second)

    side_by_side(lambda: first.step(1.0), lambda: second.step(3.0), leave)
    assert first.own.local.tolist() == second.own.local.tolist() == [-1.0] * PLAN.total
    assert [facts["left"] for event, facts in first.said if event == "the members are others"] == [["worker-2"]]


def test_who_joins_later_begins_with_anothers_model_and_trains_on_with_it(member: Callable[..., Member]) -> None:
    first, second, late = member(0), member(1), member(2, 77.0)
    begun("allreduce", first, second)
    for _ in range(3):
        side_by_side(lambda: first.step(1.0, 0.25), lambda: second.step(1.0, 0.25))
    told(2, first, second, late)
    late.begin("allreduce", begins=False)
    assert late.own.local.tolist() == first.own.local.tolist()
    side_by_side(*(lambda one=one: one.step(1.0) for one in (first, second, late)))  # type: ignore[misc]
    assert [one.own.local[0] for one in (first, second, late)] == [-0.5 - 3 * 0.25] * 3
    assert [one.peers.round for one in (first, second, late)] == [4] * 3


def test_who_joins_waits_for_the_rate_of_the_step_that_comes(member: Callable[..., Member]) -> None:
    first, late = member(0), member(1, 77.0)
    told(1, first)
    first.begin("allreduce")
    seen = np.zeros(PLAN.total, np.float32)
    first.peers.start_step(seen)
    first.peers.end_step(seen, lambda: None)
    told(2, first, late)
    checks: list[float] = []

    def check() -> None:  # between two tries
        checks.append(late.own.lr)
        if len(checks) == 2:
            first.peers.take_rate(0.125)

    late.begin("allreduce", begins=False, check=check)

    assert checks == [0.5, 0.5]
    assert late.own.lr == 0.125


def test_who_comes_back_is_another_member_and_numbers_its_messages_anew(member: Callable[..., Member]) -> None:
    first, second = member(0), member(1)
    begun("allreduce", first, second)
    for _ in range(3):
        side_by_side(lambda: first.step(1.0), lambda: second.step(1.0))
    second.close()
    again = member(1, 50.0, incarnation=2)
    told(2, first, again)
    again.begin("allreduce", begins=False)
    for _ in range(3):
        side_by_side(lambda: first.step(1.0), lambda: again.step(1.0))
    assert first.own.local.tolist() == again.own.local.tolist() == [-3.0] * PLAN.total


def test_where_nobody_has_a_model_any_more_the_run_is_given_up(member: Callable[..., Member]) -> None:
    alone, other = member(0), member(1)
    told(3, alone, other)
    failed: list[BaseException] = []

    def join(one: Member) -> None:
        with pytest.raises(DataError, match="All workers that had the run's model are gone") as caught:
            one.begin("adpsgd", begins=False)
        failed.append(caught.value)

    side_by_side(lambda: join(alone), lambda: join(other))
    assert len(failed) == 2


def test_those_who_all_had_to_join_anew_go_on_with_what_they_have(member: Callable[..., Member]) -> None:
    members = [member(0), member(1)]
    begun("allreduce", *members)
    for _ in range(3):
        side_by_side(*(lambda one=one: one.step(1.0) for one in members))  # type: ignore[misc]
    for one in members:  # fenced
        one.peers.end()
        one.incarnation = 2
        one.own = Own(np.full(PLAN.total, 9.0, np.float32), PLAIN, 0.5)
        one.own.slots = PLAIN.new_slots(PLAN.total)
    told(2, *members)
    side_by_side(*(lambda one=one: one.begin("allreduce", begins=False) for one in members))  # type: ignore[misc]
    side_by_side(*(lambda one=one: one.step(1.0) for one in members))  # type: ignore[misc]
    assert {one.own.local[0] for one in members} == {-2.0}


def test_a_member_without_a_place_in_the_topology_ends_the_step_with_the_reason(
    member: Callable[..., Member],
) -> None:
    first, second, spare = (member(rank) for rank in range(3))
    told(1, first, second)
    matrix = build_topology(Options(name="matrix", rows=((0.5, 0.5), (0.5, 0.5))))
    first.peers.begin(1, build_peer_policy(Options(name="dpsgd")), matrix, first.own, 0, True, lambda: None)
    told(2, first, second, spare)
    with pytest.raises(PacelineError, match="rank 2 is a member"):
        first.step(1.0)


# what is refused
def deliver(to: Member, kind: str, head: dict[str, Any], values: Any = (), token: str = TOKEN) -> None:
    """A message that the test writes, of worker-1 where the head says nothing else."""
    sent = np.asarray(values, np.float32)
    said = {"worker": "worker-1", "incarnation": 1, "clock": 1, "plan_hash": PLAN.hash, "elements": len(sent)} | head
    note = {"kind": "PEER_MESSAGE_KIND_ASK", "view": 1, "round": 1, "weight": 1.0, "to": to.incarnation} | said.pop(
        "note", {}
    )
    message = pb.PushHead(**said, note=pb.PeerNote(**note))  # type: ignore[arg-type]
    with peer.PeerLine(to.address, Credentials(token), kind) as line:
        line.deliver(message, encoded_parts(sent, load_codec("none"), 64), SOON)


@pytest.fixture
def taker(member: Callable[..., Member]) -> Member:
    """Averages with worker-1, whose messages the test writes."""
    found, other = member(0, 1.0), member(1, 3.0)
    told(1, found, other)
    found.begin("adpsgd")
    return found


ONES = np.ones(PLAN.total)


@pytest.mark.parametrize(
    ("head", "values", "error", "match"),
    [
        ({"plan_hash": "another"}, ONES, PlanMismatch, "another plan"),
        ({"note": {"kind": "PEER_MESSAGE_KIND_UNSPECIFIED"}}, ONES, BadPush, "of kind 'unspecified'"),
        ({"elements": 3 * PLAN.total}, ONES, BadPush, "announces"),
        ({"elements": PLAN.total}, ONES[1:], BadPush, f"of {PLAN.total:,} values"),
        ({"worker": "worker-7"}, ONES, NotYet, "does not know worker-7"),
        ({"incarnation": 9}, ONES, NotYet, "does not know worker-1"),
        ({}, np.full(PLAN.total, np.nan), BadPush, "NaN or infinity"),
        ({"note": {"weight": np.inf}}, ONES, BadPush, r"PeerNote\.weight is (inf|-1)"),
        ({"note": {"weight": -1.0}}, ONES, BadPush, r"PeerNote\.weight is (inf|-1)"),
        ({"note": {"sparse": True}}, ONES, BadPush, r"announces .* \(ask\)"),
        (
            {"note": {"kind": "PEER_MESSAGE_KIND_UPDATE", "sparse": True}},
            ONES,
            BadPush,
            "of kind 'update'; expected answer, ask",
        ),
        ({"codec": "topk"}, ONES, BadPush, "Weights can't be sent as topk"),
    ],
)
def test_a_message_that_is_wrong_changes_nothing(
    taker: Member, kind: str, head: dict[str, Any], values: Any, error: type[PacelineError], match: str
) -> None:
    with pytest.raises(error, match=match):
        deliver(taker, kind, head, values)
    assert taker.own.local.tolist() == [1.0] * PLAN.total


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.ones(3), "positions that are not in rising order"),
        (np.array([1, 1, 2, 2], np.uint32).view(np.float32), "positions that are not in rising order"),
        (np.concatenate([np.ones(1, np.float32), np.array([PLAN.total], np.uint32).view(np.float32)]), "beyond"),
    ],
)
def test_a_sparse_message_with_wrong_places_changes_nothing(
    member: Callable[..., Member], kind: str, values: Any, match: str
) -> None:
    taker, other = member(0, 1.0), member(1)
    told(1, taker, other)
    taker.begin("broadcast", "complete")
    with pytest.raises(BadPush, match=match):
        deliver(taker, kind, {"note": {"kind": "PEER_MESSAGE_KIND_UPDATE", "sparse": True}}, values)
    assert taker.own.local.tolist() == [1.0] * PLAN.total


def test_without_the_token_nothing_is_taken(taker: Member, kind: str) -> None:
    with pytest.raises(Unauthenticated):
        deliver(taker, kind, {}, ONES, "another-random-word")


def test_a_message_that_comes_twice_is_taken_once_and_one_for_a_former_process_never(taker: Member, kind: str) -> None:
    deliver(taker, kind, {"note": {"to": 7}}, 3 * ONES)
    assert taker.own.local.tolist() == [1.0] * PLAN.total
    for _ in range(3):
        deliver(taker, kind, {}, 3 * ONES)
    assert taker.own.local.tolist() == [2.0] * PLAN.total


def test_a_worker_that_has_ended_puts_others_off(taker: Member, kind: str) -> None:
    taker.peers.end()
    with pytest.raises(NotYet, match="is not training at the moment"):
        deliver(taker, kind, {}, ONES)


def test_a_refused_message_ends_the_senders_step_with_the_reason(member: Callable[..., Member]) -> None:
    first, second = member(0), member(1)
    begun("allreduce", first, second)
    with pytest.raises(BadPush, match="NaN or infinity"):
        first.step(np.nan)
    second.peers.end()


# what they count
MODEL = 2 * PLAN.total
"""Bytes of a model as bf16."""


@pytest.fixture
def pair(member: Callable[..., Member]) -> tuple[Member, Member]:
    """Two that know each other."""
    found = member(0, codec="bf16"), member(1, codec="bf16")
    told(1, *found)
    return found


def test_an_exchange_of_models_counts_at_both_ends_as_on_the_wire(pair: tuple[Member, Member]) -> None:
    passive, active = pair
    begun("adpsgd", *pair)
    active.step(1.0)
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
    told(2, stays)
    assert stays.count("members") == 1

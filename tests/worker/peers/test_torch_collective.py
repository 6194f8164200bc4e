"""Gradients added up by torch.distributed: the policy's half in a network of one thread, then groups, then whole runs."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import BadPush, ConfigError
from paceline.core.peers.peer_policy import Meeting, Message, build_peer_policy
from paceline.core.peers.topologies.ring import Ring
from paceline.core.settings.config import Options
from paceline.core.steps.optimizers.sgd import Sgd
from paceline.rpc.auth import Credentials
from paceline.settings.load_settings import load
from tests.runs.test_peer_runs import after, run, started
from tests.support.in_process import Said
from tests.support.nights import fewer
from tests.support.peer_network import Peers
from tests.support.processes import Cluster
from tests.worker.peers.test_other_workers import PLAN, Member, side_by_side, told

torch = pytest.importorskip("torch")
collective = pytest.importorskip("paceline.worker.peers.torch_collective")
BY_TORCH = {"name": "allreduce", "by": "torch"}
BY_TORCH_RUN = run("allreduce", 3) | {"policy": BY_TORCH}
FEW = fewer(2)


class Outcome:
    """What a collective tells one member; under way like a message."""

    def __init__(self, to: int, meeting: Meeting, total: np.ndarray | None, count: float) -> None:
        self.to = to
        self.meeting = meeting
        self.total = total
        self.count = count


class Collected(Peers):
    """Members whose gradients a collective adds up: each one gets the sum at some time, or that it can't be had, or
    nothing, where another one did not take part to the end."""

    def __init__(self, count: int, seed: int = 0, failing: float = 0.0, **more) -> None:
        first = {3 * place + 1: np.ones(3) for place in range(count)}
        self.given: dict[tuple[int, int, int], dict[int, tuple[np.ndarray | None, bool]]] = {}
        self.told_port: set[tuple[int, int]] = set()
        self.failing = failing
        self.sums = 0
        self.drawn = Random(seed + 1)
        super().__init__("allreduce", first, seed=seed, lr=0.1, by="torch", **more)

    def go_on(self, rank: int) -> None:
        super().go_on(rank)
        self.follow(rank)

    def deliver(self, number: int = 0):
        if isinstance(self.wire[number], Outcome):
            found = self.wire.pop(number)
            if found.to in self.members:
                self.send(self.members[found.to].summed(found.meeting, found.total, found.count))
        else:
            found = super().deliver(number)
        self.follow(found.to)
        return found

    def follow(self, rank: int) -> None:
        policy = self.members.get(rank)
        meeting = policy and policy.meeting()
        if meeting is not None and meeting.place == 0 and meeting.port is None:
            self.send(policy.meet_at(meeting, 1024 + meeting.view))
            meeting = policy.meeting()
        if meeting is not None and meeting.round is not None and meeting.port is not None:
            self.take_part(rank, meeting)

    def take_part(self, rank: int, meeting: Meeting) -> None:
        assert meeting.port == 1024 + meeting.view
        given = self.given.setdefault((meeting.view, meeting.first, meeting.round), {})
        if rank in given:
            return
        fails_before, fails_after = (self.drawn.random() < self.failing for _ in range(2))
        if fails_before:
            given[rank] = None
            self.wire.append(Outcome(rank, meeting, None, 0))
            return
        given[rank] = (None if meeting.gradient is None else meeting.gradient.copy(), fails_after)
        if len(given) == len(meeting.members) and None not in given.values():
            gradients = [gradient for gradient, _ in given.values() if gradient is not None]
            total = np.sum(gradients, axis=0, dtype=np.float32) if gradients else np.zeros(3, np.float32)
            self.sums += 1
            for member, (_, fails) in given.items():
                self.wire.append(Outcome(member, meeting, None if fails else total.copy(), len(gradients)))

    @property
    def kinds(self) -> set[str]:
        return {message.kind for message in self.sent}

    @property
    def bits(self) -> set[bytes]:
        return {self.model(rank).tobytes() for rank in self.members}


# the policy
def test_a_collective_gives_all_the_mean_and_no_part_is_sent() -> None:
    peers = Collected(3, gradient=lambda rank, x: np.full(3, rank, np.float32))

    peers.run(5)

    assert peers.models() == pytest.approx(np.full((3, 3), 1 - 5 * 0.1 * 4))  # ranks 1, 4, 7
    assert (peers.sums, peers.kinds) == (5, {"meet"})
    assert len(peers.sent) == 2


def test_a_gradient_that_cannot_be_used_weighs_nothing_in_a_collective_either() -> None:
    peers = Collected(3, gradient=lambda rank, x: None if rank == 4 else np.full(3, rank, np.float32))

    peers.run(1)

    assert peers.models() == pytest.approx(np.full((3, 3), 1 - 0.1 * 4))


def test_a_lone_member_meets_nobody() -> None:
    alone = Collected(1, gradient=lambda rank, x: x)

    alone.run(20)

    assert (alone.sums, alone.sent) == (0, [])


def test_who_cannot_have_the_sum_gets_it_from_one_who_has() -> None:
    peers = Collected(3, gradient=lambda rank, x: np.full(3, rank, np.float32))
    peers.failing = 1.0
    peers.drawn.random = iter([1.0, 1.0, 1.0, 0.0, 1.0, 1.0]).__next__  # the second one fails, after it took part

    peers.run(1)

    assert (peers.sums, len(peers.bits)) == (1, 1)
    assert peers.models() == pytest.approx(np.full((3, 3), 1 - 0.1 * 4))
    assert peers.kinds == {"meet", "part", "mean"}


def test_one_who_falls_back_takes_the_others_along_until_the_next_try() -> None:
    peers = Collected(4, gradient=lambda rank, x: x + np.float32(rank))
    peers.run(3)
    peers.failing = 0.4
    peers.run(4)
    peers.failing = 0.0
    assert any(policy.meeting() is None for policy in peers.members.values())
    before = peers.sums

    peers.run(16)
    assert peers.sums - before <= 1  # one that has not heard of it yet
    assert all(policy.meeting() is None for policy in peers.members.values())
    peers.run(20)

    assert all(policy.meeting().first == 17 for policy in peers.members.values())
    assert len(peers.bits) == 1


@FEW
@given(st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([0.02, 0.1, 0.3]))
def test_all_take_the_same_steps_whoever_got_the_sum_and_whoever_fell_back(
    count: int, seed: int, failing: float
) -> None:
    sgd = Sgd(lr=0.1)
    peers = Collected(count, seed, failing, gradient=lambda rank, x: x / 3 - np.float32(rank / 7), optimizer=sgd)

    peers.run(22)

    assert len(peers.bits) == 1
    assert set(peers.rounds.values()) == {22}
    alone = Peers(
        "allreduce",
        {3 * place + 1: np.ones(3) for place in range(count)},
        seed=seed,
        lr=0.1,
        optimizer=sgd,
        gradient=lambda rank, x: x / 3 - np.float32(rank / 7),
    )
    alone.run(22)
    assert peers.models() == pytest.approx(alone.models(), abs=1e-4)


@FEW
@given(
    st.integers(2, 6),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.lists(st.integers(0, 150), min_size=1, max_size=5),
)
def test_all_who_stay_take_the_same_steps_whoever_leaves_or_joins_in_a_collective(
    count: int, seed: int, failing: float, events: list[int]
) -> None:
    random = Random(seed)
    peers = Collected(
        count,
        seed,
        failing,
        optimizer=Sgd(lr=0.1),
        gradient=lambda rank, x: None if random.random() < 0.1 else x / 3 - np.float32(rank / 7),
    )

    peers.run_with_changes(events, random)
    peers.failing = 0.0
    peers.run(max(peers.rounds.values()) + 40)

    assert len(peers.bits) == 1
    assert len(set(peers.rounds.values())) == 1
    assert len(peers.members) == 1 or all(policy.meeting() is not None for policy in peers.members.values())


def test_a_sum_that_comes_too_late_is_passed_over() -> None:
    peers = Collected(2, gradient=lambda rank, x: x)
    for rank in (1, 1):
        peers.go_on(rank)
    policy = peers.members[1]
    meeting = policy.meeting()
    assert meeting.round == 1
    peers.send(policy.summed(meeting, None))
    assert policy.meeting() is None

    assert policy.summed(meeting, np.zeros(3, np.float32), 2.0) == []
    assert policy.waits_for() == {4}
    assert policy.meet_at(meeting, 5000) == []


@pytest.mark.parametrize("values", [[], [0.0], [65536.0], [1.0, 2.0]])
def test_a_place_to_meet_that_is_none_is_refused(values: list[float]) -> None:
    peers = Collected(2)

    with pytest.raises(BadPush, match="as the port to meet on; expected 1 to 65535"):
        peers.members[4].receive(Message("meet", 1, 4, 1, 1, np.array(values, np.float32)))


@pytest.mark.parametrize(
    ("policy", "more", "said"),
    [
        ({"name": "allreduce", "by": "mpi"}, {}, "policy.by: got 'mpi'; input should be 'ring' or 'torch'"),
        (BY_TORCH, {"codec": {"push": "bf16"}}, "codec.push is bf16.*can't travel so. Use none"),
        ({"name": "dpsgd", "by": "torch"}, {}, "policy.by: there is no such setting"),
    ],
)
def test_what_does_not_go_with_a_collective_is_told(policy: dict[str, str], more: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        load(None, {"servers": 0, "workers": 3, "policy": policy, **more})


# groups of torch.distributed
class Together(Member):
    """A member whose gradients torch.distributed adds up."""

    def __init__(self, rank: int, incarnation: int = 1) -> None:
        super().__init__(rank, "lane", 0.0, incarnation)
        device = torch.device("cpu")
        self.peers.follow = collective.Collective(PLAN.total, device, Credentials(), self.peers.act, self.said).follow

    def begin(self, is_founder: bool = True) -> None:
        policy = build_peer_policy(Options(**BY_TORCH))
        self.peers.begin(self.incarnation, policy, Ring(), self.own, self.rank, is_founder, lambda: None)

    @property
    def groups(self) -> list[tuple[int, int, int]]:
        """View, first round and members of each group that it was in."""
        formed = [facts for event, facts in self.said if event == "torch.distributed adds up"]
        assert all(facts["backend"] == "gloo" for facts in formed)
        return [(facts["view"], facts["round"], facts["members"]) for facts in formed]


@pytest.fixture
def member() -> Iterator[Callable[..., Together]]:
    """Makes members; they are ended with the test."""
    made: list[Together] = []

    def make(rank: int, incarnation: int = 1) -> Together:
        made.append(Together(rank, incarnation))
        return made[-1]

    yield make
    for one in made:
        one.close()


def begun(*members: Together) -> None:
    """They are the founders of a run."""
    told(1, *members)
    for one in members:
        one.begin()


def step_all(*members: Together) -> None:
    side_by_side(*(lambda one=one: one.step(float(one.rank) / 3) for one in members))  # type: ignore[misc]
    assert len({one.own.local.tobytes() for one in members}) == 1


def test_gloo_gives_all_the_same_bits(member: Callable[..., Together]) -> None:
    members = [member(rank) for rank in range(4)]
    begun(*members)
    for _ in range(3):
        step_all(*members)
    assert members[0].own.local == pytest.approx(np.full(PLAN.total, -3 * 0.5 * 0.5))
    assert all(one.groups == [(1, 1, 4)] for one in members)
    assert not members[0].said.has("no more")


def test_without_a_member_that_leaves_the_ring_adds_up_until_the_next_try(member: Callable[..., Together]) -> None:
    first, second, gone = (member(rank) for rank in range(3))
    begun(first, second, gone)
    step_all(first, second, gone)
    gone.close()
    told(2, first, second)
    for _ in range(15):
        step_all(first, second)
    assert first.groups == [(1, 1, 3)]
    back = member(2, incarnation=2)
    told(3, first, second, back)
    back.begin(is_founder=False)
    for _ in range(3):
        step_all(first, second, back)
    assert first.groups[1:] == second.groups[1:] == back.groups == [(3, 17, 3)]
    assert first.said.has("torch.distributed adds up no more")


def test_a_member_that_leaves_in_mid_sum_is_no_failure(
    member: Callable[..., Together], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Semaphore(0)
    reduce = collective._Gloo._reduce

    def reduce_and_tell(self: object, row: object, left: threading.Event) -> None:
        try:
            reduce(self, row, left)
        except RuntimeError:
            lost.release()
            raise

    monkeypatch.setattr(collective._Gloo, "_reduce", reduce_and_tell)
    monkeypatch.setattr(collective, "_WORD", 60.0)
    first, second, gone = (member(rank) for rank in range(3))
    begun(first, second, gone)
    step_all(first, second, gone)
    gone.close()

    def tell() -> None:
        assert lost.acquire(timeout=20)
        assert lost.acquire(timeout=20)
        told(2, first, second)

    side_by_side(lambda: first.step(1.0), lambda: second.step(1.0), tell)
    for one in (first, second):
        assert not one.said.has("failed; the ring takes over")


def test_a_sum_that_is_not_finite_is_refused() -> None:
    alone = collective._Gloo(torch.distributed.HashStore(), 0, ["127.0.0.1"], 3, torch.device("cpu"))
    total, count = alone.add_up(np.arange(3, dtype=np.float32), 0.5, threading.Event())
    assert (total.tolist(), count) == ([0, 1, 2], 0.5)
    assert alone.add_up(None, 1.0, threading.Event())[1] == 0
    with pytest.raises(BadPush, match="The sum of gradients of 1 workers, which count 1, has NaN or infinity"):
        alone.add_up(np.full(3, np.inf, np.float32), 1.0, threading.Event())


def test_a_group_that_cannot_be_formed_is_done_without(
    member: Callable[..., Together], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("the port is not open")

    monkeypatch.setattr(collective.dist, "TCPStore", refuse)
    members = [member(rank) for rank in range(3)]
    begun(*members)
    for _ in range(3):
        step_all(*members)
    assert not any(one.groups for one in members)
    said = [facts for one in members for event, facts in one.said if "failed; the ring takes over" in event]
    assert said[0] == {"round": 1, "why": "the port is not open"}


def test_tls_and_a_torch_without_gloo_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(credentials: Credentials) -> None:
        collective.Collective(1, torch.device("cpu"), credentials, lambda act: None, Said())

    with pytest.raises(ConfigError, match=r"encrypts nothing, and this run has TLS. Set policy.by=ring"):
        build(Credentials(tls=tmp_path))
    monkeypatch.setattr(collective.dist, "is_gloo_available", lambda: False)
    with pytest.raises(ConfigError, match=r"built without .* Gloo. Set policy.by=ring"):
        build(Credentials())


# whole runs
def test_a_run_by_torch_trains_to_the_end(tmp_path: Path) -> None:
    with Cluster(tmp_path, **BY_TORCH_RUN) as cluster:
        workers, evaluator = started(cluster)
        status = cluster.until(lambda status: status.phase == "finished")
        codes = [process.wait() for process in (*workers, evaluator)]
        cluster.end_servers(0)
    assert codes == [0, 0, 0, 0]
    assert status.scores[-1].metrics["test_accuracy"] > 0.75
    for worker in workers:
        assert len(worker.events("torch.distributed adds up", backend="gloo", members=3)) == 1
        assert not worker.events("torch.distributed failed; the ring takes over")


def test_who_is_killed_in_a_collective_comes_back_and_a_group_is_formed_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, **(BY_TORCH_RUN | {"epochs": 1000})) as cluster:
        workers, evaluator = started(cluster)
        after(cluster, 3)
        workers[2].kill()
        again = cluster.worker(2, torch=True)
        assert again.wait_for("training")["founder"] is False
        for worker in (workers[0], workers[1], again):
            worker.wait_for("torch.distributed adds up", round=again.wait_for("torch.distributed adds up")["round"])
        after(cluster, 20)
        cluster.stop()
        cluster.until(lambda status: status.phase == "finished")
        codes = [process.wait() for process in (workers[0], workers[1], again, evaluator)]
    assert codes == [0, 0, 0, 0]
    assert all(worker.events("torch.distributed adds up no more") for worker in workers[:2])


def test_who_hangs_in_a_collective_holds_up_neither_the_others_nor_their_end(tmp_path: Path) -> None:
    with Cluster(tmp_path, **(BY_TORCH_RUN | {"epochs": 1000})) as cluster:
        workers, evaluator = started(cluster)
        after(cluster, 3)
        workers[2].send(signal.SIGSTOP)
        for worker in workers[:2]:
            assert worker.wait_for("the members are others")["left"] == ["worker-2"]
        after(cluster, 20)
        cluster.stop()
        cluster.until(lambda status: status.phase == "finished")
        assert [process.wait() for process in (*workers[:2], evaluator)] == [0, 0, 0]
    for worker in workers[:2]:
        assert worker.events("torch.distributed adds up", members=2)

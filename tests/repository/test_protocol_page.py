"""The pages of the protocol: each example runs on the real slices and the real book of seats, and each row of its tables
must be what they give."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from paceline.core.chief.leases import Leases, Pace, Wish
from paceline.core.chief.membership import Membership
from paceline.core.chief.other_servers import OtherServers
from paceline.core.errors import PacelineError
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.layout import Layout
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import make_plan, server_memory
from paceline.core.slice.state import Standing
from paceline.core.values import Base, Dense, Empty, Manner, Push, Reply, View
from paceline.rpc.channel import call
from paceline.rpc.enums import phase_of, value_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.server.json_files import FORMAT
from paceline.server.state_folder import StateFolder
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.parameter_service_pb2_grpc import ParameterServiceStub
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.v1.tensor_pb2 import Tensor
from tests.support.in_process import SHAPES, Cluster, Context, config_of, join_request
from tests.support.one_slice import OneSlice
from tests.support.tree import ROOT

PAGES = [ROOT / f"docs/understand/{name}.md" for name in ("protocol", "members", "rounds", "recovery", "releases")]
TEXT = "\n".join(page.read_text() for page in PAGES)
SGD = Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)
W0, W1, W2 = "worker-0", "worker-1", "worker-2"
CALL = Context()
Row = tuple[str, ...]


def example(heading: str) -> list[Row]:
    """The rows of the table under this heading that follows the word Example, without their marks."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = section.split("**Example", 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|")))
    return rows[2:]


class OneServer:
    """A server's slice of one weight, and who hears what of it."""

    def __init__(self, policy: str, *workers: str, weight: float = 1.0, clocks: int = 0, **options: object) -> None:
        """`clocks`: pushes of zeros that every worker has made before the example begins."""
        self.policy = build_policy(Options(name=policy, **options))
        self.slice = ModelSlice(1, self.policy, SGD)
        self.slice.initialise(np.array([weight], np.float32), b"first")
        self.membership = Membership(4, 15.0, self.policy.rounds)
        for worker in workers:
            self.membership.candidate(worker, self.membership.join(worker, False, 0.0), 0, 0.0)
        self.membership.start({}, 0.0)
        self.slice.view(self.membership.view)
        for clock in range(1, clocks + 1):
            for worker in workers:
                self.push(worker, clock, 0.0)

    def base(self) -> Base:
        return Base(self.slice.term, self.slice.version)

    def push(
        self, worker: str, clock: int, gradient: float | None, base: Base | None = None, incarnation: int = 1
    ) -> list[Reply]:
        update = Empty(1) if gradient is None else Dense(np.array([gradient], np.float32))
        examples = 0 if gradient is None else 1
        return self.slice.push(Push(worker, incarnation, clock, update, examples, base or self.base(), 0, 0.0))

    @property
    def weight(self) -> str:
        found = self.slice.pull()
        self.slice.release(found)
        return f"{found.values[0]:.2f}"

    def clocks(self, *workers: str) -> str:
        return ", ".join(str(self.slice.clocks.entry(worker).clock) for worker in workers)


def answered(replies: list[Reply]) -> str:
    """The answers that go out, in worker order."""
    if not replies:
        return "none yet"
    found = []
    for reply in sorted(replies, key=lambda reply: reply.worker):
        why = f" ({reply.reason})" if reply.reason else ""
        found.append(f"{reply.worker}: {reply.outcome.upper()}{why}, clock {reply.clock}")
    return "; ".join(found)


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(PacelineError) as caught:
        attempt()
    return type(caught.value).__name__


def book(view: View) -> str:
    return "; ".join(f"{worker}: {seat.incarnation}, {seat.handicap}" for worker, seat in view.seats.items())


def told(standing: Standing) -> str:
    return f"term {standing.term}, clock {standing.clock}, version {standing.version}"


def test_clocks():
    server = OneServer("asp", W0, W1)
    first = server.base()

    def row(step: str, answer: str) -> Row:
        return (step, server.clocks(W0, W1), str(server.slice.version), server.weight, answer)

    rows = [
        row("worker-0 pushes clock 1, gradient 2", answered(server.push(W0, 1, 2.0, first))),
        row("worker-1 pushes clock 1, gradient 1; the answer is lost", answered(server.push(W1, 1, 1.0, first))),
        row("worker-1 says Resume", told(server.slice.resume(W1, 1)).removeprefix("term 1, ")),
        row("worker-1 asks for clock 1", answered(server.slice.ask(W1, 1, 1, 0.0))),
        row("worker-0 pushes clock 2, empty", answered(server.push(W0, 2, None))),
        row("worker-0 pushes clock 4, gradient 1", refused(lambda: server.push(W0, 4, 1.0))),
    ]

    assert rows == example("Clocks")
    assert server.slice.clocks.entry(W1).staleness == 1


def test_answers_that_wait():
    server = OneServer("ssp", W0, W1, bound=1)
    clocks = server.slice.clocks

    def row(step: str, replies: list[Reply]) -> Row:
        return (step, f"{clocks.lead(W0)}, {clocks.lead(W1)}", answered(replies))

    rows = [
        row("worker-0 pushes clock 1", server.push(W0, 1, 1.0)),
        row("worker-0 pushes clock 2", server.push(W0, 2, 1.0)),
        row("20 s later: the call ends with WAIT, and worker-0 asks for clock 2", server.slice.ask(W0, 1, 2, 0.0)),
        row("worker-1 pushes clock 1", server.push(W1, 1, 1.0)),
    ]

    assert rows == example("Answers that wait")


def test_terms():
    server = OneServer("asp", W0)
    old = server.base()
    rows = []

    def row(step: str, answer: str) -> None:
        rows.append((step, ", ".join(map(str, server.base())), server.weight, answer))

    replies = server.push(W0, 1, 2.0, old)
    row("worker-0 pushes clock 1, gradient 2, base 1, 0", answered(replies))
    base, state = server.base(), server.slice.state()
    server.slice = ModelSlice(1, server.policy, SGD, term=2)
    server.slice.restore(state)
    server.slice.view(server.membership.view)
    standing = server.slice.resume(W0, 1)
    row("the server is killed and comes back; worker-0 says Resume", told(standing))
    row("worker-0 pushes clock 2, gradient 1, base 1, 1", answered(server.push(W0, 2, 1.0, base)))
    row("worker-0 pushes clock 3, gradient 1, base 2, 1", answered(server.push(W0, 3, 1.0)))
    row("worker-0 pushes clock 4, gradient 1, base 2, 9", refused(lambda: server.push(W0, 4, 1.0, Base(2, 9))))

    assert rows == example("Terms")


def test_incarnations():
    servers = [OneServer("asp", W0), OneServer("asp", W0)]
    for server, clocks in zip(servers, (5, 4), strict=True):
        for clock in range(1, clocks + 1):
            server.push(W0, clock, 1.0)
    incarnation = servers[0].membership.join(W0, False, 1.0)
    rows = [("its new process says Join", f"incarnation {incarnation}", "")]
    standings = [server.slice.resume(W0, incarnation) for server in servers]
    rows.append(("it says Resume", *(f"clock {standing.clock}" for standing in standings)))
    clock = min(standing.clock for standing in standings)
    servers[0].membership.seat(W0, incarnation, clock, None, servers[0].slice.clocks, 1.0)
    view = servers[0].membership.view
    for server in servers:
        server.slice.view(view)
    rows.append((f"it says Seat with clock {clock}", f"view {view.number}, {book(view)}", f"view {view.number}"))
    for clock in (5, 6):
        before = [server.slice.version for server in servers]
        replies = [server.push(W0, clock, 1.0, incarnation=incarnation) for server in servers]
        folds = [
            f"{each[0].outcome.upper()}, version {known} to {server.slice.version}"
            for each, known, server in zip(replies, before, servers, strict=True)
        ]
        rows.append((f"it pushes clock {clock}", *folds))
    late = [refused(lambda server=server: server.push(W0, 6, 1.0, incarnation=1)) for server in servers]
    rows.append(("the old process, frozen until now, pushes clock 6", *late))

    assert rows == example("Incarnations")


def test_views():
    membership = Membership(2, 15.0, rounds=False)
    clocks = Clocks()
    rows = []

    def row(step: str) -> None:
        clocks.take_view(membership.view)
        rows.append((step, str(membership.view.number), book(membership.view)))

    for worker in (W0, W1):
        membership.candidate(worker, membership.join(worker, False, 0.0), 0, 0.0)
    membership.start({}, 0.0)
    row("both have said Join and Seat, and the evaluator is ready")
    for now in range(1, 16):
        membership.tick(float(now))
        membership.beat(W0, 1, float(now))
    clocks.entry(W0).clock = 9
    clocks.entry(W1).clock = 3
    assert membership.tick(16.0) == [W1]
    row("worker-1 is silent for 15 s")
    assert refused(lambda: membership.beat(W1, 1, 17.0)) == "Fenced"
    incarnation = membership.join(W1, True, 17.0)
    membership.seat(W1, incarnation, 3, None, clocks, 17.0)
    row("it thaws, gets Fenced, says Join, Resume and Seat with clock 3")
    membership.leave(W0, 1, finished=True)
    row("worker-0 has pushed its last clock and says Leave")

    assert rows == example("Views")


def test_handicaps():
    server = OneServer("ssp", W0, W1, bound=3)
    clocks = server.slice.clocks
    for clock in range(1, 6):
        server.push(W0, clock, 0.0)
        server.push(W1, clock, 0.0)
    for clock in (6, 7, 8):
        server.push(W0, clock, 0.0)
    membership = server.membership
    membership.seat(W2, membership.join(W2, False, 1.0), 0, None, clocks, 1.0)
    server.slice.view(membership.view)
    numbers = (
        lambda worker: clocks.entry(worker).clock,
        lambda worker: clocks.seat(worker).handicap,
        clocks.progress,
        clocks.lead,
    )

    rows = [(worker, *(str(number(worker)) for number in numbers)) for worker in (W0, W1, W2)]
    assert rows == example("Handicaps")


def test_leases():
    leases, marks, rows = Leases(3), {W0: 4}, list[Row]()
    leases.end = 8

    def leased(worker: str, after: int, place: int) -> str:
        wish = Wish(worker, after, 1, 4, place=place)
        lease = leases.grant(wish, {0, 1, 2}, marks, Pace(is_level=False, is_exact=False))
        clocks, first = (lease.after + 1, lease.end), lease.rows(after + 1).start
        many = lease.end > lease.after + 1
        text = f"clock{'s' * many} {' to '.join(map(str, clocks if many else clocks[:1]))}: stream {lease.stream}, "
        text += f"row{'s' * many} {first}" + f" to {lease.stop - 1}" * many
        return text + "".join(f", not for server {server}" for server in lease.has)

    rows.append((f"{W2} asks after clock 0", leased(W2, 0, 2)))
    leased(W0, 0, 0)
    leases.release(W2, [3, 2])
    rows.append((f"{W0} asks after clock 4", leased(W0, 4, 0)))
    rows.append(("it asks after clock 5", leased(W0, 5, 0)))
    rows.append((f"{W2} comes back with clock 2 and asks", leased(W2, 2, 2)))

    assert rows == [row[:2] for row in example("Leases") if "ask" in row[0]]


def fields(message: Any, names: str) -> str:
    """Some fields of a message, as the page writes them."""
    found = []
    for name in names.split():
        is_enum = message.DESCRIPTOR.fields_by_name[name].enum_type is not None
        value = value_of(message, name) if is_enum else getattr(message, name)
        is_many = isinstance(value, Sequence) and not isinstance(value, str)
        found.append(f"{name} {', '.join(map(str, value)) if is_many else value}")
    return ", ".join(found)


def test_the_start_of_a_run(tmp_path: Path):
    config = config_of("asp", workers=2, servers=2, transport="grpc")
    cluster, rows = Cluster(config, tmp_path), []
    plan, tensors = make_plan(SHAPES, 2, config.plan), [Tensor(name=name, shape=shape) for name, shape in SHAPES]
    channels = [grpc.insecure_channel(address) for address in cluster.addresses]
    data = [ParameterServiceStub(channel) for channel in channels]

    def called(name: str, server: int, request: Any, told: str, reply: Any, brought: str, more: str = "") -> None:
        rows.append((name, str(server), fields(request, told), more + fields(reply, brought)))

    def parts(kind: type[Any], length: int, **head: Any) -> tuple[pb.PushHead, Iterator[Any]]:
        values = np.ones(length, np.float32).tobytes()
        digest = hashlib.sha256(values).digest()
        made = pb.PushHead(worker=W0, plan_hash=plan.hash, codec="none", elements=length, digest=digest, **head)
        return made, iter([kind(head=made, data=values)])

    with closing(cluster):
        cluster.evaluator_ready()
        join = join_request(config, W0)
        joined = cluster.run.Join(join, CALL)
        called("Join", 0, join, "examples shards", joined, "incarnation shards seat phase")
        resume = pb.ResumeRequest(worker=W0, incarnation=1, tensors=tensors, plan_hash=plan.hash, protocol=PROTOCOL)
        for server in (0, 1):
            reply = data[server].Resume(resume, timeout=30)
            called("Resume", server, resume, "incarnation clock", reply, "term clock version phase")
        for server in (0, 1):
            head, stream = parts(pb.InitialiseRequest, plan.lengths[server])
            called("Initialise", server, head, "elements", data[server].Initialise(stream, timeout=30), "term")
        other = cluster.run.Join(join_request(config, W1), CALL)
        chief = cluster.servers[0].chief
        with chief.changed:
            chief.seat(W1, other.incarnation, 0)
        seat = run_pb.SeatRequest(worker=W0, incarnation=1, clock=0)
        found = cluster.run.Seat(seat, CALL)
        assert found.seated
        called("Seat", 0, seat, "incarnation clock", found, "view handicap phase", "seated, ")
        for server in (0, 1):
            request = pb.PullRequest(reader=W0, plan_hash=plan.hash)
            head = next(data[server].Pull(request, timeout=30)).head
            called("Pull", server, request, "", head, "term version elements")
        for server in (0, 1):
            facts = {"incarnation": 1, "clock": 1, "examples": 4, "base_term": 1, "base_version": 0, "view": 1}
            head, stream = parts(pb.PushPullRequest, plan.lengths[server], **facts)
            reply = next(data[server].PushPull(stream, timeout=30)).head
            told, brought = (
                "clock examples base_term base_version view elements",
                "term version clock staleness members",
            )
            outcome = f"{value_of(reply, 'outcome').upper()}, "
            called("PushPull", server, head, told, reply, f"{brought} elements", outcome)
    for channel in channels:
        channel.close()

    assert rows == example("The start of a run")


def test_rounds():
    server = OneServer("bsp", W0, W1)
    first = server.base()
    rows = []

    def row(step: str, replies: list[Reply]) -> None:
        rows.append((step, str(server.slice.version), server.weight, answered(replies)))

    row("worker-1 pushes clock 1, gradient 3", server.push(W1, 1, 3.0, first))
    row("worker-0 pushes clock 1, gradient 1", server.push(W0, 1, 1.0, first))
    row("worker-0 pushes clock 2, empty", server.push(W0, 2, None))
    row("worker-1 pushes clock 2, gradient 1", server.push(W1, 2, 1.0))

    assert rows == example("Rounds")


def test_how_to_step_with_a_push():
    one = OneSlice("bsp", [W0, W1], [1, 1], SGD, layout=Layout.whole([("a", (1,)), ("b", (1,))]))
    rows = [("before", "0", "1.00, 1.00")]

    def row(worker: str, gradient: tuple[int, int], manner: Manner) -> None:
        one.push(worker, *gradient, manner=manner)
        said = f"rates {manner.rates[0]}" if manner.rates else f"untouched {manner.untouched[0]}"
        weights = ", ".join(f"{weight:.2f}" for weight in one.weights)
        step = f"{worker} pushes gradients {gradient[0]} and {gradient[1]}, {said}"
        rows.append((step, str(one.slice.version), weights))

    row(W0, (2, 2), Manner(rates=(0.5,)))
    for worker, gradient in ((W1, (2, 0)), (W0, (1, 0)), (W1, (1, 0))):
        row(worker, gradient, Manner(untouched=(1,)))

    assert rows == example("How to step with a push")


def test_rounds_that_stay_open():
    chief, other = OneServer("bsp", W0, W1, clocks=7), OneServer("bsp", W0, W1, clocks=7)
    others, rows = OtherServers(2), []

    def row(step: str, *replies: list[Reply]) -> None:
        free = sorted({reply.worker for each in replies for reply in each})
        rows.append((step, str(chief.slice.version), str(other.slice.version), ", ".join(free) or "nobody"))

    def both_push(clock: int) -> None:
        pushed = [[reply for worker in (W0, W1) for reply in each.push(worker, clock, 0.0)] for each in (chief, other)]
        both = [reply for reply in pushed[0] if reply.worker in {each.worker for each in pushed[1]}]
        row(f"worker-0 and worker-1 push clock {clock} to both", both)

    membership = chief.membership
    start = others.start_of(chief.slice.version)
    membership.seat(W2, membership.join(W2, False, 1.0), 0, None, chief.slice.clocks, 1.0, start)
    assert membership.view.seats[W2].handicap == start == 8
    others.keep_open(membership.view.number, start)
    chief.slice.keep_rounds_open(others.open_from)
    chief.slice.view(membership.view)
    row("worker-2 says Seat with clock 0: view 2 gives it the handicap 8")
    both_push(8)
    other.slice.view(membership.view)
    others.acknowledged(1, 1, membership.view.number, 0)
    row("server 1 has view 2 and says so", chief.slice.keep_rounds_open(others.open_from))
    both_push(9)
    replies = [server.push(W2, 1, 0.0) for server in (chief, other)]
    row("worker-2 has pulled version 8 and pushes its clock 1 to both", *replies)

    assert rows == example("Rounds that stay open")


@pytest.mark.parametrize(("policy", "pushed"), [("asp", (5, 2)), ("bsp", (5, 5))])
def test_the_end_of_a_run(policy: str, pushed: tuple[int, int]):
    server = OneServer(policy, W0, W1, clocks=min(pushed))
    for clock in range(min(pushed) + 1, max(pushed) + 1):
        server.push(W0, clock, 0.0)
    version = server.slice.version
    server.membership.stop(server.slice.clocks)
    seats = server.membership.view.seats
    server.slice.view(server.membership.view)
    lasts = ", ".join(str(seats[worker].last) for worker in (W0, W1))
    row = (policy, ", ".join(map(str, pushed)), str(version), lasts)

    assert row in example("The end of a run")
    while running := [worker for worker in (W0, W1) if not server.slice.clocks.has_ended(worker)]:
        base = server.base()
        replies = [server.push(worker, server.slice.clocks.entry(worker).clock + 1, 0.0, base) for worker in running]
    assert all(reply.stop for each in replies for reply in each)
    assert refused(lambda: server.push(W0, seats[W0].last + 1, 0.0)) == "BadPush"


def test_changes_of_policy():
    server = OneServer("asp", W0, W1)
    for worker, pushed in ((W0, 5), (W1, 2)):
        for clock in range(1, pushed + 1):
            server.push(worker, clock, 0.0)
    clocks, membership, rows = server.slice.clocks, server.membership, []

    def row(step: str, replies: list[Reply] | None = None) -> None:
        progress = ", ".join(str(clocks.progress(worker)) for worker in (W0, W1))
        free = answered(replies) if replies is not None else ""
        rows.append((step, server.clocks(W0, W1), progress, str(server.slice.version), free))

    row("before")
    membership.switch({"name": "bsp"}, clocks)
    switch, seats = membership.view.switch, membership.view.seats
    assert (switch.number, switch.version, seats[W0].switch_clock, seats[W1].switch_clock) == (1, 12, 6, 3)
    server.slice.view(membership.view)
    row("SetPolicy bsp: view 2 names the switch clocks 6 and 3, and version 12")
    row("worker-0 pushes clock 6, its switch clock", server.push(W0, 6, 0.0))
    replies = server.push(W1, 3, 0.0)
    assert all(reply.switch == switch for reply in replies)
    row("worker-1 pushes clock 3, its switch clock: the slice takes bsp", replies)
    membership.end_switch(rounds=True)
    server.slice.view(membership.view)
    assert (membership.view.seats[W0].handicap, membership.view.seats[W1].handicap) == (6, 9)
    row("all servers have said so: view 3 has the handicaps 6 and 9")
    row("worker-0 pushes clock 7 under bsp", server.push(W0, 7, 0.0))
    row("worker-1 pushes clock 4 under bsp", server.push(W1, 4, 0.0))

    assert rows == example("Changes of policy")


def test_recovery_of_a_server():
    server = OneServer("asp", W0, W1)
    rows = []

    def row(step: str, answer: str, clocks: str = "", weight: str = "") -> None:
        where = f"{server.slice.phase}, {server.slice.version}"
        rows.append((step, where, clocks or server.clocks(W0, W1), weight or server.weight, answer))

    server.push(W0, 1, 1.0)
    server.push(W1, 1, 1.0)
    state = server.slice.state()
    row("each has pushed clock 1; a snapshot is written", "")
    server.push(W0, 2, 1.0)
    base = server.base()
    row("worker-0 pushes clock 2 and has its answer", "worker-0: FOLDED, clock 2")
    server.slice = ModelSlice(1, server.policy, SGD, term=2)
    server.slice.restore(state)
    server.slice.view(server.membership.view)
    row("kill -9, and a new start from the snapshot", "")
    row("worker-0 pushes clock 3, base 1, 3", refused(lambda: server.push(W0, 3, 1.0, base)))
    row("worker-0 says Resume", told(server.slice.resume(W0, 1)))
    row("worker-0 sends clock 2 again, base 1, 2", answered(server.push(W0, 2, 1.0, Base(1, 2))))
    row("worker-0 pushes clock 3, base 1, 3", answered(server.push(W0, 3, 1.0, base)))
    row("worker-1 says Resume", told(server.slice.resume(W1, 1)))
    row("worker-1 pushes clock 2, base 1, 2", answered(server.push(W1, 2, 1.0, Base(1, 2))))

    assert rows == example("Recovery of a server")


def test_memory_of_a_server():
    arrays = build_policy(Options(name="bsp")).server_arrays(4)
    found = server_memory(1_000_000, Sgd(momentum=0.9).slots, arrays, 4, 0, 512 << 20)

    rows = [
        (purposes, f"{sum(found[purpose] for purpose in purposes.split(', ')) // 4:,}")
        for purposes in ("weights, published", "optimizer", "snapshot", "policy", "assembly")
    ]
    assert rows == example("Memory of a server")


def test_older_and_newer_peers(tmp_path: Path):
    cluster, later = Cluster(config_of(transport="grpc"), tmp_path), b"\xc0\x3e\x05"  # field 1000
    chief = RunServiceStub(grpc.insecure_channel(cluster.addresses[0]))

    def joined(request: run_pb.JoinRequest) -> str:
        return f"incarnation {call(chief.Join, request, 30).incarnation}"

    def folder() -> str:
        store = StateFolder(tmp_path / "kept", 3, lambda event, **facts: None)
        store.close()
        return f"term {store.term}"

    def renumbered(change: Callable[[dict[str, Any]], object]) -> None:
        path = tmp_path / "kept" / "term.json"
        value = json.loads(path.read_text().splitlines()[0])
        change(value)
        text = json.dumps(value)
        path.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")

    join = join_request(cluster.config, W0)
    with_more = run_pb.JoinRequest.FromString(join.SerializeToString() + later)
    with closing(cluster):
        found = [
            joined(join),
            refused(lambda: joined(join_request(cluster.config, W0, protocol=PROTOCOL + 1))),
            refused(lambda: joined(join_request(cluster.config, W0, protocol=0))),
            joined(with_more),
            f"phase {phase_of(call(chief.Status, run_pb.StatusRequest.FromString(later), 30))}",
        ]
    folder()
    found.append(folder())
    renumbered(lambda value: value.pop("format"))
    found.append(folder())
    renumbered(lambda value: value.update(format=FORMAT + 1))
    found.append(refused(folder))

    assert (PROTOCOL, FORMAT) == (5, 1)
    assert found == [row[1] for row in example("Older and newer peers")]


def test_every_example_of_the_pages_has_its_test():
    sections = re.split(r"\n## ", TEXT)
    headings = [section.partition("\n")[0] for section in sections if "**Example" in section]

    assert headings
    assert {f"test_{heading.lower().replace(' ', '_')}" for heading in headings} <= set(globals())

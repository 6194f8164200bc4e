"""The chief and its slice have a lock each, so that neither waits for what the other is at."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from paceline.rpc.protocol_version import PROTOCOL
from paceline.server.chief_lock import ChiefLock
from paceline.v1 import parameter_service_pb2
from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import Cluster, Context, config_of, seated

Begin = Callable[..., Cluster]
CALL = Context()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as made:
        yield lambda config: made.enter_context(closing(Cluster(config, tmp_path)))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class LongStep:
    """A push that the slice counts until the test lets it end."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        model_slice = cluster.servers[0].driver.model_slice
        self.is_begun, self.may_end, push = threading.Event(), threading.Event(), model_slice.push

        def long(*told: Any) -> Any:
            self.is_begun.set()
            assert self.may_end.wait(120)
            return push(*told)

        monkeypatch.setattr(model_slice, "push", long)


def test_the_chief_answers_everybody_while_its_slice_makes_a_step(
    begin: Begin, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(config_of(servers=2, epochs=100))
    (pusher,) = seated(cluster)
    step, run, term = LongStep(cluster, monkeypatch), cluster.run, cluster.servers[1].driver.term
    view = cluster.servers[0].chief.membership.view.number
    held = threads.submit(pusher.push, 1.0)
    assert step.is_begun.wait(60)

    worker = {"worker": pusher.name, "incarnation": pusher.incarnation}
    calls = [
        threads.submit(run.Heartbeat, pb.HeartbeatRequest(**worker, phase=pb.WORKER_PHASE_EXCHANGE), CALL),
        threads.submit(run.Validated, pb.ValidatedRequest(**worker, loss=0.5, examples=10), CALL),
        threads.submit(run.FollowView, pb.FollowViewRequest(server=1, term=term, protocol=PROTOCOL), CALL),
        threads.submit(
            run.ReportServer, pb.ReportServerRequest(server=1, term=term, view=view, protocol=PROTOCOL), CALL
        ),
        threads.submit(run.Evaluate, pb.EvaluateRequest(protocol=PROTOCOL), CALL),
        threads.submit(run.Status, pb.StatusRequest(), CALL),
    ]
    try:
        *_, score, status = [call.result(timeout=30) for call in calls]
        assert not held.done()
    finally:
        step.may_end.set()

    assert (score.due, score.epoch, status.version, status.workers[0].clock) == (True, 0, 0, 0)
    held.result(timeout=60)
    status = run.Status(pb.StatusRequest(), CALL)
    assert (status.version, status.examples, status.workers[0].clock) == (1, 1, 1)


def test_pushes_pulls_and_resumes_are_answered_while_the_chief_is_at_work(
    begin: Begin, threads: ThreadPoolExecutor
) -> None:
    cluster = begin(config_of(epochs=100))
    (pusher,) = seated(cluster)

    with cluster.servers[0].chief.changed:
        (head,) = threads.submit(pusher.push, 1.0).result(timeout=30)
        threads.submit(pusher.client.pull, pusher.model).result(timeout=30)
        (standing,) = threads.submit(pusher.client.attach, pusher.incarnation).result(timeout=30)

    assert head.outcome == parameter_service_pb2.OUTCOME_FOLDED
    assert (set(pusher.model), standing.clock) == ({-1.0}, 1)


@pytest.mark.parametrize(("policy", "last"), [("asp", 3), ("bsp", 4)])
def test_a_chief_that_is_at_work_when_the_budget_is_spent_names_the_same_last_clock(
    policy: str, last: int, begin: Begin, threads: ThreadPoolExecutor
) -> None:
    cluster = begin(config_of(policy, epochs=1 if policy == "asp" else 2))
    (pusher,) = seated(cluster)
    stops = []

    with cluster.servers[0].chief.changed:
        for _ in range(2):
            (head,) = threads.submit(pusher.push, 1.0, 50).result(timeout=30)
            stops.append(head.stop)
        next_push = threads.submit(pusher.push, 1.0, 50)
    stops.append(next_push.result(timeout=60)[0].stop)
    while not stops[-1]:
        stops.append(pusher.push(1.0, 50)[0].stop)

    assert len(stops) == last


def test_nobody_takes_the_chiefs_lock_after_the_slices_or_waits_with_both() -> None:
    inner = threading.Condition()
    outer = ChiefLock(inner)
    with outer, inner, outer, pytest.raises(AssertionError, match="with the slice's lock"):
        outer.wait(0.0)
    with inner, pytest.raises(AssertionError, match="before the slice's"), outer:
        pass
    with outer:
        assert not outer.wait(0.0)

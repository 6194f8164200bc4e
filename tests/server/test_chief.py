"""The chief in one process: what it keeps, which workers it admits, and how a run ends."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.chief.workers import WorkerReport
from paceline.core.errors import BadPush, ConfigError, Fenced, PoolFull, TryAgain
from paceline.core.settings.config import Options, ScheduleConfig
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.setting_values import policy_message
from paceline.server.chief import Chief
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.membership.calls_to_chief import Heartbeat
from tests.support.disks import FailingDisk
from tests.support.in_process import LENGTH, Cluster, Context, Pusher, config_of, join_request
from tests.support.processes import eventually

Begin = Callable[..., Cluster]
CALL = Context()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as made:
        yield lambda config: made.enter_context(closing(Cluster(config, tmp_path)))


def chief_of(cluster: Cluster) -> Chief:
    return cluster.servers[0].chief


def join(cluster: Cluster, number: int = 0, **more: object) -> pb.JoinReply:
    return cluster.run.Join(join_request(cluster.config, f"worker-{number}", **more), CALL)


def sit(cluster: Cluster, number: int, incarnation: int, clock: int = 0) -> pb.SeatReply:
    request = pb.SeatRequest(worker=f"worker-{number}", incarnation=incarnation, clock=clock)
    return cluster.run.Seat(request, CALL)


def started(cluster: Cluster) -> list[Pusher]:
    """A run with one worker, which trains."""
    cluster.evaluator_ready()
    return [Pusher(cluster).join().sit()]


def stop(cluster: Cluster) -> None:
    cluster.run.Stop(pb.StopRequest(reason="enough"), CALL)


def final_score(accuracy: float = 0.5) -> pb.EvaluateRequest:
    score = pb.Score(epoch=1, metrics={"test_accuracy": accuracy}, final=True)
    return pb.EvaluateRequest(protocol=PROTOCOL, score=score)


def test_an_incarnation_is_on_disk_before_its_worker_learns_it_and_they_go_on_after_a_restart(begin: Begin) -> None:
    cluster = begin(config_of(workers=2))
    for expected in (1, 2):
        assert join(cluster).incarnation == expected
        saved = cluster.servers[0].folder.load_run()
        assert saved["membership"]["incarnations"] == {"worker-0": expected}
    cluster.restart(0)
    assert join(cluster).incarnation == 3


def test_a_loss_is_on_disk_before_its_worker_learns_that_it_came(begin: Begin) -> None:
    svm = {"stopping": {"rule": "window"}, "stop": "all"}
    cluster = begin(config_of(workers=2, epochs=99, svm=svm))
    cluster.evaluator_ready()
    incarnations = [join(cluster, number).incarnation for number in (0, 1)]
    for number in (0, 1):
        sit(cluster, number, incarnations[number])

    def validated(number: int, loss: float) -> dict[str, Any]:
        facts = {"worker": f"worker-{number}", "incarnation": incarnations[number], "epoch": 0}
        cluster.run.Validated(pb.ValidatedRequest(**facts, loss=loss, examples=10), CALL)
        return cluster.servers[0].folder.load_run()

    first, second = validated(0, 3.0), validated(1, 1.0)

    assert second["losses"] == [2.0]
    run = Run(cluster.config)
    run.restore(first, 0.0)
    for number in (0, 1, 0, 1):
        run.beat(f"worker-{number}", incarnations[number], WorkerReport(phase="compute"), 0.0)
    run.validated("worker-1", 0, 1.0, 10, lambda: cluster.servers[0].driver.clocks, 0.0)
    assert run.common_stopping.losses == [2.0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"settings": ["task=other"]}, "other settings than the servers: .*task=other"),
        ({"shards": 1}, "only 1 shards"),
        ({"examples": 0}, "no training examples"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused_with_the_fix(begin: Begin, more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        join(begin(config_of(workers=2)), **more)


def test_more_workers_than_seats_wait_and_the_same_name_takes_its_seat_over(begin: Begin) -> None:
    cluster = begin(config_of(workers=1))
    with pytest.raises(BadPush, match="is no name"):
        cluster.run.Join(join_request(cluster.config, "Worker 0\n"), CALL)
    join(cluster, 0)
    with pytest.raises(PoolFull, match="Raise 'workers'"):
        join(cluster, 1)
    assert join(cluster, 0).incarnation == 2


def test_only_servers_of_the_run_follow_views(begin: Begin) -> None:
    cluster = begin(config_of(servers=1))
    for server in (0, 1, 99):
        with pytest.raises(BadPush, match=f"no server {server}"):
            cluster.run.FollowView(pb.FollowViewRequest(server=server, protocol=PROTOCOL), CALL)
        with pytest.raises(BadPush, match=f"no server {server}"):
            cluster.run.ReportServer(pb.ReportServerRequest(server=server), CALL)


def test_stopping_a_run_that_waits_finishes_it_at_once_and_says_why(begin: Begin) -> None:
    cluster = begin(config_of(workers=2))
    reply = join(cluster)
    stop(cluster)
    status = cluster.run.Status(pb.StatusRequest(), CALL)
    assert (phase_of(status), status.reason) == ("finished", "enough; unscored: nothing was trained")
    assert phase_of(sit(cluster, 0, reply.incarnation)) == "finished"
    assert join(cluster, 1).incarnation == 0


def test_a_member_that_comes_back_while_the_run_stops_gets_its_seat_and_its_last_clock(begin: Begin) -> None:
    cluster = begin(config_of(workers=2, start_when=1, on_lost_worker="wait"))
    (pusher,) = started(cluster)
    pusher.push(1.0)
    stop(cluster)
    again = join(cluster, 0)
    seat = sit(cluster, 0, again.incarnation, clock=1)
    assert (again.incarnation, seat.seated, seat.last, phase_of(seat)) == (2, True, 2, "stopping")
    assert join(cluster, 1).incarnation == 0


def test_a_run_whose_last_worker_left_is_scored_and_finished_once(begin: Begin) -> None:
    cluster = begin(config_of())
    (pusher,) = started(cluster)
    pusher.push(1.0, examples=100)
    stop(cluster)
    pusher.chief.leave(pusher.incarnation, True)
    due = cluster.run.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL), CALL)
    assert (due.due, due.final, phase_of(due)) == (True, True, "scoring")
    for _ in range(2):
        assert phase_of(cluster.run.Evaluate(final_score(), CALL)) == "finished"
    assert len(cluster.run.Status(pb.StatusRequest(), CALL).scores) == 1


def test_workers_that_all_leave_early_leave_a_run_that_waits_and_can_be_stopped(begin: Begin) -> None:
    cluster = begin(config_of(epochs=100))
    (pusher,) = started(cluster)
    pusher.push(1.0)
    pusher.chief.leave(pusher.incarnation, False)
    assert chief_of(cluster).run.phase is RunPhase.TRAINING
    assert join(cluster).incarnation == 2
    stop(cluster)
    assert chief_of(cluster).run.phase is RunPhase.SCORING


def test_who_has_more_epochs_than_the_chief_waits_for_it_and_who_has_fewer_is_refused(begin: Begin) -> None:
    cluster = begin(config_of(epochs=2))
    (pusher,) = started(cluster)
    pusher.push(1.0, examples=200)
    stop(cluster)
    pusher.chief.leave(pusher.incarnation, True)
    cluster.run.Evaluate(final_score(), CALL)
    more, fewer = (join_request(config_of(epochs=epochs), "worker-0") for epochs in (5, 1))

    with pytest.raises(TryAgain, match="worker-0 has more epochs than the servers, which have 2: it waits"):
        cluster.run.Join(more, CALL)
    with pytest.raises(TryAgain, match="the evaluator has more epochs"):
        cluster.run.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL, epochs=5), CALL)
    with pytest.raises(ConfigError, match="worker-0 has other settings than the servers: epochs=1; epochs=2"):
        cluster.run.Join(fewer, CALL)

    cluster.config = cluster.config.model_copy(update={"epochs": 5})
    cluster.restart(0)
    assert cluster.said[0].has("the run was over, and goes on")
    assert cluster.run.Join(more, CALL).incarnation == 2
    assert chief_of(cluster).run.phase is RunPhase.WAITING


def test_an_evaluator_that_waits_ends_once_another_one_has_called(begin: Begin) -> None:
    cluster = begin(config_of(epochs=100))
    started(cluster)
    first = cluster.run.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL), CALL)
    assert (first.due, first.number) == (True, 1)
    report = pb.Score(epoch=0, metrics={"test_accuracy": 0.5})
    with ThreadPoolExecutor(1) as threads:
        old = pb.EvaluateRequest(protocol=PROTOCOL, number=1, score=report)
        waiting = threads.submit(cluster.run.Evaluate, old, CALL)
        eventually(lambda: chief_of(cluster).run.scoring.scores, "the old evaluator's score")
        assert chief_of(cluster).run.scoring.admit(0) == 2
        with chief_of(cluster).changed:
            chief_of(cluster).changed.notify_all()
        with pytest.raises(Fenced, match="Evaluator 2 has taken over from number 1"):
            waiting.result(timeout=30)


@pytest.mark.parametrize("phase", ["stopping", "scoring", "finished"])
def test_a_chief_that_restarts_near_the_end_goes_on_from_there(begin: Begin, phase: str) -> None:
    cluster = begin(config_of(epochs=2))
    (pusher,) = started(cluster)
    pusher.push(1.0, examples=150)
    stop(cluster)
    if phase != "stopping":
        pusher.chief.leave(pusher.incarnation, True)
    if phase == "finished":
        cluster.run.Evaluate(final_score(), CALL)
    cluster.restart(0)
    status = cluster.run.Status(pb.StatusRequest(), CALL)
    assert (phase_of(status), status.examples, status.epoch, status.reason) == (phase, 150, 1.5, "enough")
    if phase == "scoring":
        due = cluster.run.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL), CALL)
        assert (due.due, due.final, due.epoch) == (True, True, 1)


def test_the_spent_budget_stops_the_run(begin: Begin) -> None:
    cluster = begin(config_of(epochs=1))
    (pusher,) = started(cluster)
    pusher.push(1.0, examples=99)
    assert chief_of(cluster).run.phase is RunPhase.TRAINING
    pusher.push(1.0, examples=1)
    assert pusher.push(1.0)[0].stop, "it is counted once the chief has named the end in another thread"
    assert chief_of(cluster).run.phase is RunPhase.STOPPING


def test_a_budget_per_worker_names_the_last_clock_at_once_and_ends_with_the_last_worker(begin: Begin) -> None:
    cluster = begin(config_of(epochs=1, budget="per_worker"))
    cluster.evaluator_ready()
    pusher = Pusher(cluster).join()
    seat = pusher.chief.seat(pusher.incarnation, 0)
    assert seat.last == 10
    stops = [pusher.push(1.0)[0].stop for _ in range(10)]
    assert stops == [False] * 9 + [True]
    again = join(cluster)
    assert sit(cluster, 0, again.incarnation, clock=10).last == 10
    cluster.run.Leave(pb.LeaveRequest(worker="worker-0", incarnation=again.incarnation, finished=True), CALL)
    assert chief_of(cluster).run.phase is RunPhase.SCORING


def test_a_worker_that_beats_but_stands_still_has_to_leave_and_it_is_said(begin: Begin) -> None:
    cluster = begin(config_of(epochs=100, stall_timeout=600.0))
    (pusher,) = started(cluster)
    pusher.chief.beat(pusher.incarnation, 0, "compute", 599.0, {})
    pusher.chief.beat(pusher.incarnation, 0, "exchange", 6000.0, {})
    assert not cluster.said[0].has("makes no step")
    pusher.chief.beat(pusher.incarnation, 0, "compute", 601.0, {})
    assert cluster.said[0].has("makes no step")
    with pytest.raises(Fenced):
        pusher.chief.beat(pusher.incarnation, 0, "compute", 602.0, {})


def test_a_chief_that_was_late_expels_nobody_for_it(begin: Begin) -> None:
    cluster = begin(config_of(epochs=100))
    started(cluster)
    chief = chief_of(cluster)
    with chief.changed:
        assert chief.run.tick(time.monotonic() + 3600) == []
        assert "worker-0" in chief.membership.view.seats


def test_leases_do_not_look_at_the_wall_clock(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = begin(config_of(epochs=100))
    started(cluster)
    for jump in (3600.0, -3600.0):
        now = time.time() + jump
        monkeypatch.setattr(time, "time", lambda now=now: now)
        chief = chief_of(cluster)
        with chief.changed:
            assert chief.run.tick(time.monotonic()) == []


def test_a_restarted_chief_starts_all_leases_anew(begin: Begin) -> None:
    cluster = begin(config_of(epochs=100))
    started(cluster)
    cluster.restart(0)
    chief = chief_of(cluster)
    assert all(time.monotonic() - place.last_beat < 10 for place in chief.membership.places.values())
    assert list(chief.membership.view.seats) == ["worker-0"]


def test_the_reason_and_the_members_are_in_the_status(begin: Begin) -> None:
    cluster = begin(config_of(Options(name="ssp", bound=2), epochs=4, run="named"))
    (pusher,) = started(cluster)
    pusher.push(1.0, examples=50)
    pusher.chief.beat(pusher.incarnation, 1, "compute", 0.5, {"loss": 2.0})
    status = cluster.run.Status(pb.StatusRequest(), CALL)
    (worker,) = status.workers
    assert (status.run, status.version, status.examples, status.budget, status.epoch) == ("named", 1, 50, 400, 0.5)
    assert (worker.worker, worker.clock, phase_of(worker), worker.member) == ("worker-0", 1, "compute", True)
    assert dict(worker.figures) == {"loss": 2.0}


def test_calls_of_a_worker_that_keep_failing_are_in_the_status_until_they_work(begin: Begin) -> None:
    cluster = begin(config_of())
    (pusher,) = started(cluster)
    outage = pusher.around.outages.watch("server 7 at a:1")

    def shown() -> str:
        pusher.chief.beat(pusher.incarnation, 1, "exchange", 0.5, {})
        return cluster.run.Status(pb.StatusRequest(), CALL).workers[0].outage

    for _ in range(3):
        outage.failed("a push", "no answer.")
    assert shown().startswith("a push to server 7 at a:1 has failed 3 times")
    outage.works()
    assert shown() == ""


def test_heartbeats_that_have_no_answer_are_said_with_what_to_do_until_they_have(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(config_of())
    (pusher,) = started(cluster)
    answers, rest, alarm = iter([False, False, False, True]), threading.Event(), threading.Event()

    def beaten(*state: Any) -> Any:
        alarm.set()  # the next one is due at once
        if next(answers, True):
            return pb.HeartbeatReply()
        raise TryAgain("DEADLINE_EXCEEDED")

    def answered(reply: pb.HeartbeatReply) -> None:
        rest.set()

    monkeypatch.setattr(pusher.chief, "beat", beaten)
    heartbeat = Heartbeat(
        pusher.chief,
        pusher.incarnation,
        every=60.0,
        state=lambda: (1, "compute", 0.0, {}, 0),
        on_reply=answered,
        fenced=threading.Event(),
        say=pusher.around.say,
        alarm=alarm,
    )
    assert rest.wait(20)
    heartbeat.close()
    events = [(event.rpartition(" at ")[0], "advice" in facts) for event, facts in pusher.said if "Heartbeat" in event]
    assert events == [("Heartbeat to the chief", True), ("Heartbeat to the chief", False)]


def test_what_goes_wrong_is_in_the_status_and_once_in_the_log(begin: Begin) -> None:
    cluster = begin(config_of(epochs=4))
    (pusher,) = started(cluster)
    for row in (3.0, 4.0):
        figures = {"unusable_row": row, "unusable_longest": row}
        pusher.chief.beat(pusher.incarnation, 1, "compute", 0.5, figures)
    baseline = {"train_loss": 1.0}
    chief = chief_of(cluster)
    with chief.changed:
        chief.run.warnings.begins_with(baseline)
        chief.score(Score(1, 1.0, [1], {"train_loss": 9.0}))

    status = cluster.run.Status(pb.StatusRequest(), CALL)
    assert [found.kind for found in status.warnings] == ["not_finite", "loss_above_start"]
    said = [facts["kind"] for event, facts in cluster.said[0] if event == "warning"]
    assert said == ["not_finite", "loss_above_start"]


def test_a_run_whose_workers_have_no_finite_gradients_any_more_stops(begin: Begin) -> None:
    cluster = begin(config_of(epochs=4, divergence={"rollbacks": 0}))
    (pusher,) = started(cluster)
    pusher.chief.beat(pusher.incarnation, 1, "compute", 0.5, {"unusable_row": 40.0, "unusable_longest": 40.0})
    assert chief_of(cluster).run.phase == "stopping"


def test_a_failing_disk_costs_the_chief_its_notes_but_not_the_run(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = begin(config_of(epochs=100))
    full = FailingDisk(errno.ENOSPC)
    monkeypatch.setattr("paceline.server.disk.Disk.create", lambda self, path: full.create(path))
    (pusher,) = started(cluster)
    assert pusher.push(1.0)[0].version == 1
    said = [event for event, _ in cluster.said[0] if "keep" in event]
    assert said == ["can't keep the run's state; training goes on"]
    monkeypatch.undo()
    eventually(lambda: cluster.said[0].has("the run's state is kept again") or None, "the run's state is kept")


# the end of buffered sums, and changes of policy
def test_the_final_score_waits_until_every_server_knows_that_nobody_is_left(begin: Begin) -> None:
    cluster = begin(config_of(Options(name="kbuffered", k=100), servers=2))
    (pusher,) = started(cluster)
    pusher.push(1.0)
    chief = chief_of(cluster)
    stop(cluster)
    pusher.push(1.0)
    cluster.servers[1].close(grace=0)
    pusher.chief.leave(pusher.incarnation, True)
    with chief.changed:
        assert chief.run.phase is RunPhase.SCORING
        assert chief.run.due_score() is None

    cluster.servers[1] = cluster.begin(1, cluster.servers[1].port)

    with chief.changed:
        assert chief.wait(lambda: chief.run.due_score() is not None)
        assert chief.run.due_score() == (0, True)


class Learner:
    """A worker that pushes ones, and learns from its replies which policy trains."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.pusher = Pusher(cluster, number)
        self.begun = {0: 0}
        """Change of policy -> the clock after which it began."""

    def push(self) -> None:
        heads = self.pusher.push(1.0)
        number = max(head.switch.number for head in heads)
        if number > max(self.begun):
            self.begun[number] = self.pusher.clock
            self.pusher.view = max(self.pusher.view, *(head.switch.view for head in heads))
            self.pusher.client.pull(self.pusher.model, heads[0].switch.version)

    def push_until(self, number: int, more: int) -> None:
        """Pushes until the change has come, and then this number of times more."""
        while max(self.begun) < number:
            self.push()
        for _ in range(more):
            self.push()


def test_the_policy_changes_twice_while_workers_push_to_two_servers(begin: Begin) -> None:
    plain = {"schedule": ScheduleConfig(lr_scale="none"), "start_when": 2}
    cluster = begin(config_of("bsp", workers=3, servers=2, **plain))
    cluster.evaluator_ready()
    chief = chief_of(cluster)
    learners = [Learner(cluster, number) for number in range(2)]
    for learner in learners:
        learner.pusher.join()
    with ThreadPoolExecutor(3) as threads:
        wait([threads.submit(learner.pusher.sit) for learner in learners])
        training = [threads.submit(learner.push_until, 2, 3) for learner in learners]
        for policy in ("ssp", "bsp"):
            reply = cluster.run.SetPolicy(pb.SetPolicyRequest(policy=policy_message({"name": policy})), CALL)
            with chief.changed:
                assert chief.wait(lambda: not chief.run.policy_change.is_under_way)
        for one in training:
            one.result()

    model = np.empty(LENGTH, np.float32)
    versions = learners[0].pusher.client.pull(model)
    first, second = (learner.begun for learner in learners)
    in_ssp = first[2] - first[1] + second[2] - second[1]
    assert first[1] == second[1], "a round was not whole"
    assert set(model) == {-(first[1] + in_ssp + 3)}
    assert versions == [reply.switch.version + 3] * 2
    assert [server.chief is None or server.chief.run.policy.name for server in cluster.servers] == ["bsp", True]
    late = Learner(cluster, 2)
    late.pusher.join()
    seat = late.pusher.chief.seat(late.pusher.incarnation, 0)
    assert (seat.switch.number, seat.switch.policy.name) == (2, "bsp")
    assert seat.handicap == versions[0] + 1


@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [({}, BadPush, "names no policy and no option"), ({"name": "nope"}, ConfigError, "no 'nope' among the policies")],
)
def test_a_policy_that_is_none_is_refused(
    begin: Begin, policy: dict[str, str], error: type[Exception], words: str
) -> None:
    cluster = begin(config_of())
    started(cluster)
    with pytest.raises(error, match=words):
        cluster.run.SetPolicy(pb.SetPolicyRequest(policy=policy_message(policy)), CALL)
    assert not chief_of(cluster).run.policy_change.is_under_way


def test_a_score_that_can_t_be_of_the_run_is_refused(begin: Begin) -> None:
    cluster = begin(config_of())
    started(cluster)
    of_three = pb.EvaluateRequest(protocol=PROTOCOL, score=pb.Score(metrics={"test_accuracy": 1.0}, versions=[1, 2, 3]))
    with pytest.raises(BadPush, match="names 3 versions; the run has 1 servers"):
        cluster.run.Evaluate(of_three, CALL)


def test_a_last_score_is_not_taken_before_all_workers_have_left(begin: Begin) -> None:
    cluster = begin(config_of(epochs=2))
    with pytest.raises(TryAgain, match="the last score, but the run is waiting"):
        cluster.run.Evaluate(final_score(), CALL)
    (pusher,) = started(cluster)
    with pytest.raises(TryAgain, match="the last score, but the run is training"):
        cluster.run.Evaluate(final_score(), CALL)
    pusher.push(1.0, examples=200)
    stop(cluster)
    with pytest.raises(TryAgain, match="the last score, but the run is stopping"):
        cluster.run.Evaluate(final_score(), CALL)
    pusher.chief.leave(pusher.incarnation, True)
    cluster.run.Evaluate(final_score(), CALL)
    assert chief_of(cluster).run.phase is RunPhase.FINISHED

"""RunService on the chief: joins, seats, heartbeats, scores and status as gRPC calls."""

import time
from typing import Any

from paceline.base.own_files import is_own
from paceline.core.chief.leases import Wish
from paceline.core.chief.phases import RunPhase
from paceline.core.chief.workers import WorkerReport
from paceline.core.errors import BadPush, ConfigError, PermissionDenied, TryAgain
from paceline.core.settings.config import NAME, Config
from paceline.rpc.agreed_settings import changed_settings, joining_settings
from paceline.rpc.conversions import lease_message, run_phase, score_value, switch_message, view_message
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import check_protocol
from paceline.rpc.roles import caller, speak_for
from paceline.server.chief import Chief
from paceline.server.run_messages import start_value, status_reply, wanted_policy
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.run_service_pb2_grpc import RunServiceServicer

CHIEF = "the chief"
_STORED = 2.0
"""Time after which FollowView is answered, so that the server reports which snapshots it has, where a diverged run may go back
to them (seconds)."""
_FIGURES = 5.0
"""The same for its figures, where there is no other news (seconds)."""
_SWITCHING = 0.1
"""The same while the policy changes (seconds)."""
_BEFORE_START = 2.0
"""Longest time that a worker's call for a seat waits for the start (seconds)."""
_OVER = (RunPhase.STOPPING, RunPhase.SCORING, RunPhase.FINISHED)


class RunServicer(RunServiceServicer):
    """Translates between messages and the chief. Thread-safe."""

    def __init__(self, chief: Chief, config: Config, is_plain: bool = False) -> None:
        """`is_plain`: it listens beyond this machine without TLS."""
        self._chief = chief
        self._config = config
        self._is_plain = is_plain

    def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        speak_for(request.worker)
        run = self._chief.run
        check_protocol(request.protocol, request.worker, CHIEF)
        self._check_join(request)
        with self._chief.answering():
            comes_back = run.phase is RunPhase.STOPPING and request.worker in run.membership.view.seats
            if run.phase in _OVER and not comes_back:
                return pb.JoinReply(phase=run_phase(run.phase))
            run.workers.compare(request.worker, request.frozen_norm, request.frozen_product)
            run.workers.compare_hash(request.worker, request.text_hash)
            incarnation = run.join(
                request.worker,
                request.was_fenced,
                request.examples,
                request.steps,
                request.fingerprint,
                time.monotonic(),
                request.address,
                request.host,
            )
            self._chief.settle()
            shards = run.membership.shards(request.worker, request.shards)
            seat = run.membership.places[request.worker].index
            return pb.JoinReply(incarnation=incarnation, shards=shards, phase=run_phase(run.phase), seat=seat)

    def Seat(self, request: pb.SeatRequest, context: Any) -> pb.SeatReply:
        speak_for(request.worker)
        chief, run = self._chief, self._chief.run
        asked = request.worker, request.incarnation, request.clock
        with chief.answering():
            done = chief.seat(*asked)
            if not done:
                chief.wait(lambda: run.phase is not RunPhase.WAITING, _BEFORE_START)
                done = run.phase is not RunPhase.WAITING and chief.seat(*asked)
            view = run.membership.view
            seat = view.seats[request.worker] if done else None
            return pb.SeatReply(
                seated=done,
                view=view.number,
                handicap=seat.handicap if seat else 0,
                last=seat.last if seat else None,
                phase=run_phase(run.phase),
                missing=run.missing(),
                switch=switch_message(view.made, view.number),
                peers=self._peers(),
                founder=run.workers.founders.get(request.worker) == request.incarnation,
            )

    def LeaseBatches(self, request: pb.LeaseBatchesRequest, context: Any) -> pb.LeaseBatchesReply:
        speak_for(request.worker)
        if not request.width:
            raise BadPush(f"{request.worker} asks for clocks without mini-batches; expected a width of 1 or more.")
        last = request.last if request.HasField("last") else None
        wish = Wish(request.worker, request.after, request.width, request.most, request.rows, last)
        with self._chief.answering():
            return lease_message(self._chief.lease(wish, request.incarnation))

    def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatReply:
        speak_for(request.worker)
        report = WorkerReport(
            request.clock,
            phase_of(request),
            request.phase_seconds,
            dict(request.figures),
            time.monotonic(),
            request.reached,
            request.outage,
            request.large_inputs,
            request.stopping,
        )
        who, alone = (request.worker, request.incarnation), None
        with self._chief.answering():
            self._chief.beat(*who, report)
            if request.stopping:
                self._chief.run.stop_signal(*who, report.seen)
                alone = self._chief.membership.leaves_alone(*who, report.seen)
            known = self._chief.terms
            terms = [known.get(server, 0) for server in range(self._config.server_processes)]
            return pb.HeartbeatReply(
                phase=run_phase(self._chief.run.phase),
                view=self._chief.membership.view.number,
                terms=terms,
                fastest=self._chief.run.workers.fastest,
                peers=self._peers(),
                seconds=self._chief.run.phases.seconds(time.monotonic()),
                alone=alone,
            )

    def Validated(self, request: pb.ValidatedRequest, context: Any) -> pb.ValidatedReply:
        speak_for(request.worker)
        with self._chief.answering():
            self._chief.validated(request.worker, request.incarnation, request.epoch, request.loss, request.examples)
        return pb.ValidatedReply()

    def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveReply:
        speak_for(request.worker)
        with self._chief.answering():
            now = time.monotonic()
            self._chief.run.leave(request.worker, request.incarnation, request.finished, now, request.stopping)
            self._chief.settle()
        return pb.LeaveReply()

    def GoBack(self, request: pb.GoBackRequest, context: Any) -> pb.GoBackReply:
        speak_for(request.worker)
        chief = self._chief
        with chief.answering():
            chief.membership.check(request.worker, request.incarnation)
            common = chief.run.common_snapshots
            if not chief.wait(lambda: common.has_all or not context.is_active()):
                return pb.GoBackReply()
            if not chief.go_back(request.terms):
                return pb.GoBackReply(impossible=True)
            chief.wait(lambda: not common.is_going_back or not context.is_active())
            return pb.GoBackReply(done=not common.is_going_back)

    def FollowView(self, request: pb.FollowViewRequest, context: Any) -> pb.FollowViewReply:
        chief = self._chief
        self._check_server(request)

        common = chief.run.common_snapshots

        def has_news() -> bool:
            view, phase = chief.membership.view.number, run_phase(chief.run.phase)
            knows_run = (view, phase) == (request.view, request.phase)
            knows_snapshots = (common.due, common.newest_for(request.common)) == (request.due, request.common)
            knows_spared = chief.run.divergence.spared(request.server) == list(request.spared)
            is_known = chief.terms.get(request.server) == request.term
            has_order = common.order(request.server) is not None
            return has_order or not (knows_run and knows_snapshots and knows_spared and is_known)

        with chief.answering():
            # a server that changes its policy or writes a snapshot reports at once when it is done
            is_busy = chief.run.policy_change.is_under_way or not common.is_written
            longest = _SWITCHING if is_busy else _STORED if chief.run.divergence.is_on else _FIGURES
            chief.wait(lambda: has_news() or not context.is_active(), longest)
            reply = view_message(chief.membership.view, chief.run.phase)
            reply.version = chief.summary.version
            reply.due = common.due
            reply.common = common.newest_for(request.common)
            reply.spared.extend(chief.run.divergence.spared(request.server))
            if (order := common.order(request.server)) is not None:
                reply.back, reply.back_to = order.number, order.version
            return reply

    def ReportServer(self, request: pb.ReportServerRequest, context: Any) -> pb.ReportServerReply:
        chief, server = self._chief, request.server
        self._check_server(request)
        with chief.answering():
            chief.figures[server] = request.figures
            chief.starts[server] = start_value(request.start)
            gone, unseated = request.unseated_examples, dict(request.unseated)
            chief.acknowledged(server, request.term, request.view, request.switch, gone, unseated)
            chief.reported(server, request.round_snapshots, request.due, request.back)
            chief.run.divergence.reported(server, request.snapshots, request.spared)
            chief.compare(request.version)
        return pb.ReportServerReply()

    def _check_server(self, request: pb.FollowViewRequest | pb.ReportServerRequest) -> None:
        """Raises PermissionDenied where the caller is another one, BadPush where the run has no such server, OtherProtocol
        where it is of another release."""
        server = request.server
        speak_for(f"server-{server}")
        if not 0 < server < self._config.servers:
            raise BadPush(f"There is no server {server} to follow views; the run has {self._config.servers}.")
        check_protocol(request.protocol, f"server {server}", CHIEF)

    def Evaluate(self, request: pb.EvaluateRequest, context: Any) -> pb.EvaluateReply:
        chief, run = self._chief, self._chief.run
        is_worker = caller().role == "worker"
        if request.worker:
            speak_for(request.worker)
        if is_worker and self._config.scored_by != "worker" and (self._config.evaluate_every or request.score.metrics):
            raise PermissionDenied(
                f"{caller().name} is a worker, and scores come from the run's evaluator alone. Start what scores with the "
                "evaluator's token: paceline keys token --role evaluator."
            )
        who = request.worker or "the evaluator"
        check_protocol(request.protocol, who, CHIEF)
        if request.epochs > self._config.epochs:
            raise self._lacks_epochs(who)
        with chief.answering():
            number = 0 if request.worker else run.scoring.admit(request.number)
            if not request.worker:
                run.ready(time.monotonic())
                chief.settle()
            run.warnings.begins_with(request.baseline)
            if request.HasField("score"):
                self._check_score(request.score)
                chief.score(score_value(request.score))

            def is_elsewhere() -> bool:
                return bool(request.worker) and not run.workers.scores(request.worker)

            if not request.midway:
                chief.wait(
                    lambda: (
                        run.due_score() is not None
                        or run.phase is RunPhase.FINISHED
                        or (run.scoring.evaluator != number if number else is_elsewhere())
                        or not context.is_active()
                    )
                )
            if number:
                run.scoring.admit(number)
            due = self._due(request.midway, request.epoch) if not is_elsewhere() else None
            epoch, final = due or (0, False)
            return pb.EvaluateReply(
                due=due is not None,
                epoch=epoch,
                final=final,
                phase=run_phase(run.phase),
                seconds=run.phases.seconds(time.monotonic()),
                switch=switch_message(run.membership.view.switch, run.membership.view.number),
                peers=run.workers.local_models,
                number=number,
                elsewhere=is_elsewhere(),
            )

    def _due(self, midway: bool, ended: int) -> tuple[int, bool] | None:
        """As `Run.due_score`; `midway`: for a worker that has `ended` that many epochs of its script."""
        if not midway:
            return self._chief.run.due_score()
        epoch = self._chief.run.due_midway(ended)
        return None if epoch is None else (epoch, False)

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        chief = self._chief
        with chief.answering():
            figures = chief.all_figures()
            return status_reply(
                chief.run, chief.summary, chief.terms, chief.starts, figures, time.monotonic(), self._is_plain
            )

    def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopReply:
        if caller().role != "admin" and not self._config.is_script:
            raise PermissionDenied(
                f"{caller().name} can end the run of a training script, and no other. Stop this one with the token of an "
                "admin: paceline stop --token-file FILE."
            )
        with self._chief.answering():
            self._chief.stop(request.reason or "stopped on request")
        return pb.StopReply()

    def SetPolicy(self, request: pb.SetPolicyRequest, context: Any) -> pb.SetPolicyReply:
        run = self._chief.run
        with self._chief.answering():
            self._chief.switch(wanted_policy(request.policy, run.policy))
            view = run.membership.view
            return pb.SetPolicyReply(switch=switch_message(view.switch, view.number))

    def _peers(self) -> list[pb.Peer]:
        if self._config.servers:
            return []
        members = self._chief.run.workers.members
        return [pb.Peer(worker=worker, incarnation=number, address=address) for worker, number, address in members]

    def _lacks_epochs(self, who: str) -> TryAgain:
        return TryAgain(
            f"{who} has more epochs than the servers, which have {self._config.epochs}: it waits until they are started with "
            "as many."
        )

    def _check_score(self, score: pb.Score) -> None:
        """BadPush: it can't be of this run. TryAgain: it is the last one, and the run still trains."""
        if len(score.versions) > max(1, self._config.servers):
            raise BadPush(
                f"The evaluator names {len(score.versions)} versions; the run has {self._config.servers} servers."
            )
        phase = self._chief.run.phase
        if score.final and phase not in (RunPhase.SCORING, RunPhase.FINISHED):
            raise TryAgain(
                f"The evaluator reports the last score, but the run is {phase}: it takes that once all workers have left."
            )

    def _check_join(self, request: pb.JoinRequest) -> None:
        if not NAME.fullmatch(request.worker):
            raise BadPush(f"{request.worker!r} is no name for a worker: small letters, digits and inner hyphens.")
        if request.shards < self._config.workers:
            raise ConfigError(
                f"The run has {self._config.workers} workers but only {request.shards} shards: every worker needs one. "
                f"Write more: paceline shard --set data.shards={self._config.workers} --fresh."
            )
        own_lines = joining_settings(self._config)
        differing = sorted(set(own_lines) ^ set(request.settings))
        if differing and not changed_settings(own_lines, request.settings):
            raise self._lacks_epochs(request.worker)
        if differing:
            task = self._config.task
            own = f" SETTINGS count where {task} is found." if is_own(task) and not self._config.is_script else ""
            raise ConfigError(
                f"{request.worker} has other settings than the servers: {'; '.join(differing)}. Use one config, with the same "
                f"files, for all.{own}"
            )

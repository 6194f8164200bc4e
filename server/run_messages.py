"""Converts a run's status to a message, and reads the policy that a message asks for."""

from collections.abc import Iterator, Mapping

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.warnings import CAPPED
from paceline.core.errors import BadPush
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Options
from paceline.core.values import worker_order
from paceline.rpc.conversions import run_phase, score_message, warning_message
from paceline.rpc.enums import number_of
from paceline.rpc.setting_values import policy_message, policy_value
from paceline.server.own_figures import ServerStart, most_capped
from paceline.server.slice_summary import SliceSummary
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.settings_pb2 import Policy


def status_reply(
    run: Run,
    summary: SliceSummary,
    terms: Mapping[int, int],
    starts: Mapping[int, ServerStart],
    figures: Mapping[int, pb.ServerFigures],
    now: float,
    is_plain: bool,
) -> pb.StatusReply:
    """The run's status. `summary`: of the chief's slice; `terms`: of each server that has reported; `starts` and `figures`: as
    far as these are known; `is_plain`: without TLS, beyond this machine."""
    views = {0: run.membership.view.number} | run.other_servers.views
    return pb.StatusReply(
        run=run.config.run or "",
        phase=run_phase(run.phase),
        reason=run.reason,
        missing=run.missing() if run.phase is RunPhase.WAITING else [],
        version=summary.version,
        examples=run.budget.examples,
        budget=run.budget.total,
        epoch=run.budget.epochs,
        seconds=run.phases.seconds(now),
        workers=_workers(run, summary.as_clocks(), most_capped(figures.values()), now),
        servers=[
            pb.ServerStatus(
                server=server,
                term=terms[server],
                view=views[server],
                start=start_message(starts.get(server, ServerStart(terms[server]))),
                figures=figures.get(server),
            )
            for server in sorted(terms)
        ],
        scores=[score_message(score) for score in run.scoring.scores],
        skipped_scores=run.scoring.skipped,
        policy=policy_message(run.policy.model_dump()),
        switching=run.policy_change.is_under_way,
        queued=run.membership.queued(now),
        warnings=[warning_message(warning) for warning in run.warnings.listed],
        awaited=run.membership.missing,
        went_back=run.common_snapshots.back.number,
        back_to=run.common_snapshots.back.version,
        going_back=run.common_snapshots.is_going_back,
        plain_text=is_plain,
        unfinished=run.awaited(now),
        gave_up=run.divergence.gave_up,
        steps=run.budget.steps,
        choices=run.policy_choice.said,
        chosen_by=run.policy_choice.home.name if run.policy_choice.is_on else "",
    )


def _workers(run: Run, clocks: Clocks, capped: Mapping[str, pb.CappedPushes], now: float) -> Iterator[pb.WorkerStatus]:
    for worker in sorted(run.workers.reports, key=worker_order):
        report = run.workers.reports[worker]
        is_member = worker in clocks.view.seats
        figures = {name: value for name, value in report.figures.items() if name != CAPPED}  # servers alone know it
        if worker in capped:
            figures[CAPPED] = capped[worker].pushes
        yield pb.WorkerStatus(
            worker=worker,
            clock=clocks.entry(worker).clock,
            lead=clocks.lead(worker) if is_member else 0,
            phase=number_of(pb.WorkerPhase.DESCRIPTOR, report.phase),
            phase_seconds=report.phase_seconds,
            silent=now - report.seen,
            figures=figures,
            member=is_member,
            host=run.workers.hosts.get(worker, ""),
            incarnation=run.membership.incarnations.get(worker, 0),
            outage=report.outage,
        )


def start_message(start: ServerStart) -> pb.ServerStart:
    return pb.ServerStart(
        is_back=start.snapshot is not None, version=start.snapshot or 0, damaged=start.damaged, term=start.term
    )


def start_value(message: pb.ServerStart) -> ServerStart:
    return ServerStart(message.term, message.version if message.is_back else None, message.damaged)


def wanted_policy(message: Policy, present: Options) -> Options:
    """The policy asked for; without a name, or with the present name, its options change the present ones. BadPush where it
    has neither, as the message of an older release."""
    found = policy_value(message)
    if not found:
        raise BadPush(
            "SetPolicy names no policy and no option; expected one of them, like ssp with bound 5. Does its caller have an "
            "older release of Paceline? Use the run's."
        )
    is_same = found.get("name", present.name) == present.name
    return Options(**(present.model_dump() if is_same else {}) | found)

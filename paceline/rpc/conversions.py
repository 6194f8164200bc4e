"""Values of core as messages, and back: views, changes of policy, how to step, and scores."""

from collections.abc import Iterable

from paceline.core.chief.leases import NOTHING, Lease
from paceline.core.chief.phases import RunPhase
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.core.values import GroupOption, Manner, Position, Seat, Switch, View
from paceline.rpc.enums import number_of
from paceline.rpc.setting_values import policy_message, policy_value
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.parameter_service_pb2 import PullHead, PushHead
from paceline.v1.switch_pb2 import Switch as SwitchMessage


def run_phase(phase: RunPhase) -> pb.RunPhase.ValueType:
    """Returns the number of the run's phase."""
    found: pb.RunPhase.ValueType = number_of(pb.RunPhase.DESCRIPTOR, phase)
    return found


def lease_message(lease: Lease) -> pb.LeaseBatchesReply:
    """The lease as the worker gets it."""
    stream = None if lease.stream == NOTHING else lease.stream
    return pb.LeaseBatchesReply(
        after=lease.after, stream=stream, start=lease.start, stop=lease.stop, width=lease.width, has=lease.has
    )


def lease_value(message: pb.LeaseBatchesReply) -> Lease:
    """The lease that the chief sent."""
    stream = message.stream if message.HasField("stream") else NOTHING
    return Lease(message.after, stream, message.start, message.stop, message.width, tuple(message.has))


def view_message(view: View, phase: RunPhase) -> pb.FollowViewReply:
    """The view as the other servers get it."""
    switch, made = (switch_message(found, view.number) for found in (view.switch, view.made))
    message = pb.FollowViewReply(
        number=view.number, phase=run_phase(phase), examples_per_epoch=view.examples_per_epoch, switch=switch, made=made
    )
    for worker, seat in view.seats.items():
        found = pb.ViewSeat(
            incarnation=seat.incarnation, handicap=seat.handicap, last=seat.last, hold=seat.switch_clock
        )
        message.seats[worker].CopyFrom(found)
    return message


def view_value(message: pb.FollowViewReply) -> View:
    """The view that the chief sent."""
    seats = {
        worker: Seat(
            seat.incarnation,
            seat.handicap,
            seat.last if seat.HasField("last") else None,
            seat.hold if seat.HasField("hold") else None,
        )
        for worker, seat in message.seats.items()
    }
    return View(
        message.number, seats, message.examples_per_epoch, switch_value(message.switch), switch_value(message.made)
    )


def manner_value(head: PushHead) -> Manner:
    """How to step with the push."""
    options = (GroupOption(option.group, option.name, tuple(option.values)) for option in head.options)
    return Manner(tuple(head.rates), tuple(head.untouched), tuple(options))


def position_value(head: PushHead) -> Position | None:
    """Where the script that pushes is in its data; None: the push does not say."""
    found = head.position
    return Position(found.batches, found.examples) if head.HasField("position") else None


def switch_message(switch: Switch | None, view: int) -> SwitchMessage | None:
    """The change of policy, and the view that names it; None where there was none."""
    if switch is None:
        return None
    return SwitchMessage(
        number=switch.number,
        policy=policy_message(switch.policy),
        version=switch.version,
        view=view,
        rate=switch.rate,
        back=switch.back,
    )


def switch_value(message: SwitchMessage) -> Switch | None:
    """The change of policy that was sent, if any."""
    if not message.number:
        return None
    return Switch(
        message.number, policy_value(message.policy), message.version, message.rate or 1.0, tuple(message.back)
    )


def newest_switch(heads: Iterable[PullHead]) -> SwitchMessage:
    """The newest change of policy that the replies of the slices tell of; its number is 0 where there was none."""
    return max((head.switch for head in heads), key=lambda switch: switch.number)


def score_message(score: Score) -> pb.Score:
    """The score as it is sent."""
    return pb.Score(
        epoch=score.epoch,
        seconds=score.seconds,
        versions=score.versions,
        metrics=score.metrics,
        final=score.final,
        measure=score.measure,
        examples=score.examples,
    )


def score_value(message: pb.Score) -> Score:
    """The score that was sent."""
    return Score(
        message.epoch,
        message.seconds,
        list(message.versions),
        dict(message.metrics),
        message.final,
        message.measure,
        dict(message.examples),
    )


def warning_message(warning: RunWarning) -> pb.RunWarning:
    """The warning as it is sent."""
    return pb.RunWarning(
        kind=warning.kind,
        problem=warning.said,
        advice=warning.advice,
        settings=warning.settings,
        epoch=warning.epoch,
        passed=warning.passed,
    )


def warning_value(message: pb.RunWarning) -> RunWarning:
    """The warning that was sent."""
    return RunWarning(
        message.kind, message.problem, message.advice, list(message.settings), message.epoch, message.passed
    )

"""Asks the chief where the run is, and turns its answers into plain values for people and files."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import Message

from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ConfigError, NotYet, PacelineError
from paceline.rpc.conversions import score_value, warning_value
from paceline.rpc.enums import value_of
from paceline.rpc.listening import PLAIN_TEXT
from paceline.rpc.setting_values import policy_message, policy_value
from paceline.v1.run_service_pb2 import (
    LeaveRequest,
    SetPolicyReply,
    SetPolicyRequest,
    StatusReply,
    StatusRequest,
    StopRequest,
)
from paceline.v1.run_service_pb2 import RunWarning as RunWarningMessage
from paceline.v1.settings_pb2 import Policy
from paceline.v1.switch_pb2 import Switch

if TYPE_CHECKING:
    from paceline.rpc.auth import Credentials

PATIENCE = 2.0
"""Seconds a call to the chief may take; on one machine it answers in milliseconds."""
WINDOW = 5.0
"""Seconds over which a rate is taken."""


class Chief(Protocol):
    """Server 0, as far as the command line needs it."""

    def status(self) -> StatusReply | None:
        """Where the run is; None while the chief can't be reached."""

    def stop(self, reason: str) -> bool:
        """Ends the training early; the run is then scored. False when the chief can't be reached; NotYet where it can't end the
        training just now."""

    def dismiss(self, worker: str, incarnation: int) -> None:
        """A worker's process is gone for good: what it has not done goes to the others at once. Does nothing where the chief
        can't be reached, which then waits for the worker's lease."""

    def set_policy(self, policy: Mapping[str, Any]) -> Switch:
        """Changes the policy to this name and options. TryAgain where the run can't do it just now, ConfigError where never."""

    def close(self) -> None: ...


class RemoteChief:
    """The chief over gRPC."""

    def __init__(self, address: str, credentials: "Credentials", patience: float = PATIENCE) -> None:
        """`patience`: seconds a call may take."""
        from paceline.rpc.channel import open_channel
        from paceline.v1.run_service_pb2_grpc import RunServiceStub

        self._patience = patience
        self.why = ""
        """Why the last call without an answer got none."""
        self._channel = open_channel(address, credentials)
        self._service: Any = RunServiceStub(self._channel)

    def status(self) -> StatusReply | None:
        found: StatusReply | None = self._call(self._service.Status, StatusRequest())
        return found

    def stop(self, reason: str) -> bool:
        return self._call(self._service.Stop, StopRequest(reason=reason)) is not None

    def dismiss(self, worker: str, incarnation: int) -> None:
        self._call(self._service.Leave, LeaveRequest(worker=worker, incarnation=incarnation))

    def set_policy(self, policy: Mapping[str, Any]) -> Switch:
        from paceline.rpc.channel import call

        reply: SetPolicyReply = call(
            self._service.SetPolicy, SetPolicyRequest(policy=policy_message(policy)), self._patience
        )
        return reply.switch

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: Any, request: Message) -> Any:
        from paceline.rpc.channel import call

        try:
            return call(method, request, self._patience)
        except (ConfigError, NotYet):  # a wrong token, say: asking again would not help; or an answer
            raise
        except PacelineError as error:
            self.why = str(error)
            return None


def exposed(status: StatusReply) -> list[str]:
    """That others could read what is sent, where they could."""
    return [f"note: {PLAIN_TEXT}."] if status.plain_text else []


class Speed:
    """Examples per second over the last few seconds, from the chief's counts."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, status: StatusReply) -> float:
        """The rate after this status; its own clock counts, so a pause of this process does not matter."""
        if self._seen and status.seconds < self._seen[-1][0]:  # the chief restarted
            self._seen.clear()
        self._seen.append((status.seconds, status.examples))
        while len(self._seen) > 2 and self._seen[-1][0] - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        (before, fewer), (now, more) = self._seen[0], self._seen[-1]
        return max(0, more - fewer) / (now - before) if now > before else 0.0


def loss(status: StatusReply) -> float | None:
    """Mean of the members' newest training losses."""
    losses = [worker.figures["loss"] for worker in status.workers if "loss" in worker.figures]
    return sum(losses) / len(losses) if losses else None


def policy_name(status: StatusReply) -> str:
    """The name of the policy in force; empty where the chief does not say it."""
    return status.policy.name


def accuracy(metrics: Mapping[str, float], split: str = "test") -> float | None:
    """A score's accuracy on that split; None where the task has no such metric."""
    return metrics.get(f"{split}_accuracy")


def pace(status: StatusReply) -> float:
    """Examples per second of all members, as each reports; `Speed` uses the chief's counts."""
    return sum(worker.figures.get("examples_per_second", 0.0) for worker in status.workers if worker.member)


def scores(status: StatusReply) -> list[Score]:
    """The evaluator's scores, oldest first."""
    return [score_value(score) for score in status.scores]


def warnings(status: StatusReply) -> list[RunWarning]:
    """What goes wrong although the run goes on, oldest first."""
    return [warning_value(each) for each in status.warnings]


def standing(found: Iterable[RunWarning]) -> list[str]:
    """Lines on what has not passed."""
    return [str(each) for each in found if not each.passed]


class News:
    """Says each warning of a run, and each choice of its policy, once."""

    def __init__(self, choices: int = 0) -> None:
        """`choices`: how many of the oldest were said by an earlier start."""
        self._known: set[str] = set()
        self._choices = choices

    def of(self, found: Sequence[RunWarning], choices: Sequence[str] = ()) -> list[str]:
        """Lines on what was not known. `choices`: all so far."""
        fresh = [each for each in found if each.kind not in self._known]
        self._known.update(each.kind for each in fresh)
        chosen, self._choices = choices[self._choices :], len(choices)
        return [*map(str, fresh), *chosen]


def plain(message: Message) -> dict[str, Any]:
    """The message as JSON values, zeros included and enums by the names that core has for them (protobuf's own JSON has 64-bit
    numbers as texts)."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    if field.enum_type is not None:
        return value_of(message, field.name)
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: _item(item) for key, item in value.items()}
    return [_item(item) for item in value] if field.is_repeated else _item(value)


def _item(value: Any) -> Any:
    if isinstance(value, Policy):
        return json.dumps(policy_value(value)) if value.name else ""
    if isinstance(value, RunWarningMessage):
        return asdict(warning_value(value))
    return plain(value) if isinstance(value, Message) else value

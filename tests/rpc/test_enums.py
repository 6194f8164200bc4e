"""The enums of the messages say what core's do, by the same names."""

from enum import StrEnum
from typing import Any, get_args

import pytest
from google.protobuf.descriptor import EnumDescriptor

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.workers import WorkerPhase
from paceline.core.peers import peer_policy
from paceline.core.slice.state import Phase
from paceline.core.values import Outcome
from paceline.launch.other_machines.hosts import PARTS
from paceline.rpc.enums import number_of, phase_of, value_of
from paceline.v1 import host_service_pb2 as host_pb
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb

ALIKE: list[tuple[EnumDescriptor, Any, set[str]]] = [
    (run_pb.RunPhase.DESCRIPTOR, RunPhase, set()),
    (run_pb.WorkerPhase.DESCRIPTOR, WorkerPhase, set()),
    (pb.SlicePhase.DESCRIPTOR, Phase, set()),
    (pb.Outcome.DESCRIPTOR, Outcome, {"wait"}),
    (pb.PeerMessageKind.DESCRIPTOR, get_args(peer_policy.Kind), set()),
    (host_pb.ProcessRole.DESCRIPTOR, PARTS, set()),
]
"""Each enum, the values in core, and what only the message can say."""


@pytest.mark.parametrize(("kind", "values", "more"), ALIKE, ids=[kind.name for kind, *_ in ALIKE])
def test_an_enum_has_the_values_of_core(kind: EnumDescriptor, values: type[StrEnum], more: set[str]) -> None:
    numbers = [number_of(kind, value) for value in (*values, *more)]
    assert sorted(numbers) == list(range(1, len(kind.values)))


def test_a_value_that_is_none_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"RunPhase has no value 'resting', only waiting, training, .*finished\."):
        number_of(run_pb.RunPhase.DESCRIPTOR, "resting")


def test_a_message_says_the_name_that_core_has_for_it() -> None:
    assert phase_of(run_pb.JoinReply(phase=run_pb.RUN_PHASE_STOPPING)) == RunPhase.STOPPING
    assert value_of(pb.PeerNote(kind=pb.PEER_MESSAGE_KIND_MODEL), "kind") == "model"


def test_a_value_that_is_left_out_or_of_a_later_release_has_a_name_too() -> None:
    assert phase_of(run_pb.StatusReply()) == "unspecified"
    assert phase_of(run_pb.StatusReply(phase=77)) == "77"  # type: ignore[arg-type]

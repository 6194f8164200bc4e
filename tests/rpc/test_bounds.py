"""Every field of a request has a rule, which is looked at where the request enters, on each transport."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from paceline.core.errors import BadPush
from paceline.core.values import Manner
from paceline.rpc.bounds import RULES, check
from paceline.rpc.setting_values import policy_message, settings_message
from paceline.v1 import host_service_pb2 as host_pb
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import peer_service_pb2 as peer_pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1 import script_service_pb2 as script_pb
from paceline.v1 import shard_service_pb2 as shard_pb
from paceline.v1.tensor_pb2 import Tensor
from tests.support.in_process import Cluster, config_of, join_request, seated
from tests.support.requests import requests

HUGE = 1 << 60
NAN, INFINITY = float("nan"), float("inf")


def needs_rule(field: FieldDescriptor) -> bool:
    """A flag is one or the other, an enum one of its values, and a message has its own rules."""
    is_flag = field.type == FieldDescriptor.TYPE_BOOL
    return field.is_repeated or not (is_flag or field.enum_type or field.message_type)


def test_every_field_of_every_request_has_a_rule_and_no_rule_is_left_over() -> None:
    expected = {name: {f.name for f in message.fields if needs_rule(f)} for name, message in requests().items()}
    assert len(expected) > 30
    assert {name: set(rules) for name, rules in RULES.items()} == expected


def heartbeat(**more: Any) -> run_pb.HeartbeatRequest:
    return run_pb.HeartbeatRequest(worker="worker-1", **more)


def head(**more: Any) -> pb.PushHead:
    return pb.PushHead(worker="worker-1", **more)


def join(**more: Any) -> run_pb.JoinRequest:
    return join_request(config_of("asp", workers=2, servers=2), "worker-1", **more)


def scored(**more: Any) -> run_pb.EvaluateRequest:
    return run_pb.EvaluateRequest(score=run_pb.Score(**more))


def child(**more: Any) -> host_pb.HostServiceReportRequest:
    return host_pb.HostServiceReportRequest(children=[host_pb.ChildReport(name="worker-1", **more)])


WRONG: list[tuple[Message, str]] = [
    (head(untouched=[0, 0]), r"PushHead.untouched is \[0, 0\] \(2 entries\); expected .* rising numbers, none twice"),
    (head(untouched=[3, 1]), "PushHead.untouched is .3, 1. .* rising"),
    (head(rates=[1.0, 1e300]), r"PushHead.rates is 1e\+300 \(one of 2 entries\); expected .* from 0 to 1e\+12"),
    (head(rates=[NAN]), "PushHead.rates is nan"),
    (head(rates=[-1.0]), "PushHead.rates is -1.0"),
    (
        head(examples=2**64 - 1),
        "PushHead.examples is 18,446,744,073,709,551,615; expected a whole number from 0 to 2,147",
    ),
    (head(base_term=2**63), "PushHead.base_term is"),
    (head(digest=b"x" * 33), "PushHead.digest is 33 bytes; expected at most 32"),
    (head(codec="c\n"), r"PushHead.codec is 'c\\n'; expected one line"),
    (head(options=[pb.GroupOption(values=[1e300])]), r"GroupOption.values is 1e\+300"),
    (head(options=[pb.GroupOption(values=[0.1, 0.2, 0.3])]), "GroupOption.values is .* expected at most 2"),
    (head(position=pb.Position(examples=HUGE)), "Position.examples is"),
    (head(note=pb.PeerNote(weight=INFINITY)), "PeerNote.weight is inf; expected a number from 0"),
    (head(note=pb.PeerNote(weight=-0.5)), "PeerNote.weight is -0.5"),
    (pb.PushHead(worker="w" * 201), "PushHead.worker is 'w+'... .201 characters.; expected one line"),
    (pb.PushPullSparseRequest(head=head(examples=HUGE)), "PushHead.examples is"),
    (pb.AskRequest(push=pb.EarlierPush(worker="worker-1", clock=HUGE)), "EarlierPush.clock is"),
    (pb.AskSparseRequest(base_version=HUGE), "AskSparseRequest.base_version is"),
    (
        pb.ResumeRequest(worker="a", tensors=[Tensor(shape=[2**39]), Tensor(shape=[2**40])]),
        "ResumeRequest.tensors",
    ),
    (pb.ResumeRequest(worker="a", tensors=[Tensor(shape=[0] * 33)]), "Tensor.shape is .0, 0.* expected at most 32"),
    (pb.PullRequest(reader="evaluator", version=HUGE), "PullRequest.version is"),
    (
        peer_pb.PullLocalRequest(reader="evaluator", plan_hash="p" * 1000),
        "PullLocalRequest.plan_hash is 'p+'... .1,000",
    ),
    (peer_pb.WelcomeRequest(reader="worker-1", first=b"x" * 33), "WelcomeRequest.first is 33 bytes"),
    (join(host="h" * 201), r"JoinRequest.host is 'h+'... \(201 characters\); expected one line of at most 200"),
    (join(host="all is well\n2026 server-0 phase=finished"), "JoinRequest.host is .* expected one line"),
    (join(address="\x1b[2J"), "JoinRequest.address is .* expected one line"),
    (join(fingerprint="f" * 1000), "JoinRequest.fingerprint is"),
    (join(settings=["a=b"] * 4097), r"JoinRequest.settings is .* \(4,097 entries\); expected at most 4,096 entries"),
    (join(settings=["a" * 70_000]), "JoinRequest.settings is .* at most 65,536 characters"),
    (join(examples=HUGE), "JoinRequest.examples is 1,152,921,504,606,846,976; expected a whole number from 0"),
    (join(shards=HUGE), "JoinRequest.shards is"),
    (run_pb.SeatRequest(worker="worker-1", clock=2**63 + 5), "SeatRequest.clock is 9,223,372,036,854,775,813"),
    (heartbeat(phase=10), "HeartbeatRequest.phase is 10; expected a value of WorkerPhase from 0 to 9"),
    (head(note=pb.PeerNote(kind=-1)), "PeerNote.kind is -1; expected a value of PeerMessageKind"),
    (heartbeat(phase_seconds=-1.0), "HeartbeatRequest.phase_seconds is -1.0; expected a number from 0"),
    (heartbeat(phase_seconds=NAN), "HeartbeatRequest.phase_seconds is nan"),
    (heartbeat(clock=HUGE), "HeartbeatRequest.clock is"),
    (
        heartbeat(figures={f"f{i}": 0.0 for i in range(513)}),
        "HeartbeatRequest.figures is .*513 entries.; expected at most 512",
    ),
    (heartbeat(figures={"f" * 201: 0.0}), "HeartbeatRequest.figures is .* names of at most 200 characters"),
    (heartbeat(large_inputs="a\nb"), "HeartbeatRequest.large_inputs is .* expected one line of at most 1,000"),
    (run_pb.ValidatedRequest(worker="worker-1", examples=HUGE), "ValidatedRequest.examples is"),
    (run_pb.GoBackRequest(worker="worker-1", terms=[2**63]), "GoBackRequest.terms is 9,?223"),
    (run_pb.ReportServerRequest(start=run_pb.ServerStart(version=HUGE)), "ServerStart.version is"),
    (
        run_pb.ReportServerRequest(figures=run_pb.ServerFigures(capped={"a": run_pb.CappedPushes(share=NAN)})),
        "CappedPushes.share is nan; expected a number from 0 to 1",
    ),
    (scored(epoch=HUGE), "Score.epoch is"),
    (scored(metrics={f"m{i}": 0.0 for i in range(513)}), "Score.metrics is .* at most 512 names"),
    (scored(measure="max\naccuracy"), "Score.measure is .* expected one line"),
    (scored(seconds=INFINITY), "Score.seconds is inf"),
    (scored(examples={"test": HUGE}), r"Score.examples is .'test', 1152921504606846976. \(one of 1 entries\)"),
    (run_pb.EvaluateRequest(baseline={f"b{i}": 0.0 for i in range(513)}), "EvaluateRequest.baseline is"),
    (
        run_pb.StopRequest(reason="r" * 1001),
        r"StopRequest.reason is 'r+'... \(1,001 characters\); expected at most 1,000",
    ),
    (run_pb.SetPolicyRequest(policy=policy_message({"name": "n" * 201})), "Policy.name is"),
    (run_pb.SetPolicyRequest(policy=policy_message({"bound": [{"deep": "x" * 70_000}]})), "Value.text is"),
    (
        script_pb.DescribeRequest(worker="worker-1", settings=settings_message(dict.fromkeys(map(str, range(4097))))),
        "DescribeRequest.settings is",
    ),
    (shard_pb.FetchRequest(name="n" * 201), "FetchRequest.name is"),
    (shard_pb.FetchRequest(ranges=[shard_pb.ByteRange(stop=HUGE)]), "ByteRange.stop is"),
    (host_pb.HostServiceJoinRequest(workers=1 << 31), "HostServiceJoinRequest.workers is"),
    (child(port=70_000), "ChildReport.port is 70,000; expected a whole number from 0 to 65,535"),
    (child(code=-HUGE), "ChildReport.code is -1,152"),
]


@pytest.mark.parametrize(("message", "error"), WRONG, ids=[error[:30] for _, error in WRONG])
def test_a_value_that_can_t_be_right_is_refused_by_field_seen_and_expected(message: Message, error: str) -> None:
    with pytest.raises(BadPush, match=f"(?s){error}.*Nothing was changed"):
        check(message)


def test_what_a_real_process_says_is_taken() -> None:
    check(join(host="a machine", address="10.0.0.7:50053"))
    check(heartbeat(phase="WORKER_PHASE_COMPUTE", phase_seconds=0.5, clock=7, figures={"loss": NAN, "alpha": 0.5}))
    check(
        scored(epoch=3, metrics={"test_accuracy": 0.9}, versions=[4, 4], measure="max accuracy", examples={"test": 270})
    )
    check(run_pb.StopRequest(reason="stopped on request"))
    note, position = pb.PeerNote(kind="PEER_MESSAGE_KIND_MODEL", weight=0.5), pb.Position(batches=3, examples=32)
    check(head(clock=3, rates=[1.0, 0.1], untouched=[0, 4, 7], plan_hash="a" * 64, note=note, position=position))
    check(child(code=-9, port=50_051, log=b"x" * (256 << 10)))
    tensors = [Tensor(name=f"layer.{number}.weight", shape=[4096, 4096]) for number in range(1000)]
    check(pb.ResumeRequest(worker="worker-1", incarnation=1, tensors=tensors))


@pytest.fixture(params=["lane", "grpc"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(config_of(push_norm_cap=1.0, transport=request.param), tmp_path)
    yield made
    made.close()


def test_heads_and_requests_are_checked_on_each_transport_and_the_run_goes_on(cluster: Cluster) -> None:
    (pusher,) = seated(cluster)
    for manner, field in ((Manner((1e300,)), "rates"), (Manner(untouched=(0, 0)), "untouched")):
        with pytest.raises(BadPush, match=f"PushHead.{field} is"):
            pusher.push(1.0, manner=manner)
        pusher.clock -= 1
    with pytest.raises(BadPush, match=r"PullRequest\.version is"):
        pusher.client.pull(pusher.model, HUGE)
    with pytest.raises(BadPush, match=r"SeatRequest\.clock is"):
        pusher.chief.seat(pusher.incarnation, 2**63 + 5)
    pusher.push(1.0)
    assert np.isfinite(pusher.model).all()
    assert cluster.servers[0].refusal is None

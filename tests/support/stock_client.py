"""A worker made of nothing but the generated protobuf stubs, as any other program could be one."""

import hashlib
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np

from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.rpc.agreed_settings import joining_settings
from paceline.rpc.auth import Credentials, held
from paceline.rpc.protocol_version import PROTOCOL
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.parameter_service_pb2_grpc import ParameterServiceStub
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.v1.tensor_pb2 import Tensor

SHAPES = (("weight", (100, 10)),)
LENGTH = 1000
PART = 300
PATIENCE = 30


class StockClient:
    """One member of a run with one server, in ordinary messages."""

    def __init__(self, address: str, config: Config, worker: str, token: str = "") -> None:
        self.channel = grpc.insecure_channel(address)
        self.data = ParameterServiceStub(self.channel)
        self.run = RunServiceStub(self.channel)
        self.metadata = (("authorization", held(Credentials(token)).shown()),) if token else ()
        self.config = config
        self.worker = worker
        self.clock = 0
        self.base = (0, 0)
        self.plan_hash = make_plan(SHAPES, 1, config.plan).hash
        self.incarnation = self.view = 0

    def call(self, method: Any, request: Any) -> Any:
        return method(request, timeout=PATIENCE, metadata=self.metadata)

    def join(self) -> None:
        """Takes a seat; brings the first weights (zeros) where there are none."""
        settings = joining_settings(self.config)
        request = run_pb.JoinRequest(
            worker=self.worker,
            examples=100,
            steps=10,
            fingerprint="x",
            shards=self.config.workers,
            settings=settings,
            protocol=PROTOCOL,
        )
        self.incarnation = self.call(self.run.Join, request).incarnation
        standing = self.resume()
        if standing.phase == "empty":
            first = np.zeros(LENGTH, np.float32)
            self.call(
                self.data.Initialise,
                self.parts(first, pb.InitialiseRequest, digest=hashlib.sha256(first.data).digest()),
            )
        self.clock = self.resume().clock
        seat = run_pb.SeatRequest(worker=self.worker, incarnation=self.incarnation, clock=self.clock)
        self.view = self.call(self.run.Seat, seat).view
        self.pull()

    def resume(self) -> pb.ResumeReply:
        tensors = [Tensor(name=name, shape=shape) for name, shape in SHAPES]
        request = pb.ResumeRequest(
            worker=self.worker,
            incarnation=self.incarnation,
            tensors=tensors,
            plan_hash=self.plan_hash,
            protocol=PROTOCOL,
        )
        reply: pb.ResumeReply = self.call(self.data.Resume, request)
        return reply

    def leave(self) -> None:
        self.call(self.run.Leave, run_pb.LeaveRequest(worker=self.worker, incarnation=self.incarnation))
        self.channel.close()

    def parts(self, values: Vector, kind: type[Any] = pb.PushPullRequest, **head: Any) -> Iterator[Any]:
        """The messages of the next push; `head` overrides what its head says."""
        facts: dict[str, Any] = {
            "worker": self.worker,
            "incarnation": self.incarnation,
            "clock": self.clock + 1,
            "examples": 1,
            "base_term": self.base[0],
            "base_version": self.base[1],
            "view": self.view,
            "plan_hash": self.plan_hash,
            "codec": "none",
            "pull_codec": "none",
            "elements": len(values),
        }
        for start in range(0, max(1, len(values)), PART):
            piece = kind(offset=start, data=values[start : start + PART].tobytes())
            if start == 0:
                piece.head.CopyFrom(pb.PushHead(**(facts | head)))
            yield piece

    def push(self, values: Vector, **head: Any) -> tuple[pb.PullHead, Vector]:
        """PushPull: the head of the reply and its weights."""
        found, weights = self._gathered(self.call(self.data.PushPull, self.parts(values, **head)))
        self.clock = found.clock
        self.base = (found.term, found.version)
        return found, weights

    def pull(self) -> Vector:
        """The newest weights."""
        request = pb.PullRequest(reader=self.worker, plan_hash=self.plan_hash, codec="none")
        head, weights = self._gathered(self.call(self.data.Pull, request))
        self.base = (head.term, head.version)
        return weights

    def _gathered(self, messages: Any) -> tuple[pb.PullHead, Vector]:
        pieces = list(messages)
        weights = np.frombuffer(b"".join(piece.data for piece in pieces), np.float32)
        assert len(weights) == pieces[0].head.elements
        return pieces[0].head, weights

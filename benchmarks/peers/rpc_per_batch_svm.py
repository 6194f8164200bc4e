"""The asynchronous sparse SVM that people write first: a gRPC call for each batch, which pushes its gradient and brings the
weights that the next batch needs.

Ordinary protobuf messages with numpy's bytes in them, a lock around the weights, gRPC's own defaults. The gradient is
computed by Paceline's compiled loop, so that only the traffic differs."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.peers.svm_team import BATCH, LEARNING_RATE, Final, Job
from paceline.core.linear.model import Examples, LinearModel
from paceline.core.linear.objective import Objective
from paceline.data.shards import open_shards
from paceline.worker.linear.linear_worker import touched

SERVICE = "tutorial.SparseServer"


def _message_class() -> Any:
    """`message Batch { bytes places = 1; bytes values = 2; bytes wanted = 3; }` as protoc's generated code would build it."""
    file = descriptor_pb2.FileDescriptorProto(name="tutorial_sparse.proto", package="tutorial", syntax="proto3")
    message = file.message_type.add(name="Batch")
    kind = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(("places", "values", "wanted"), 1):
        message.field.add(name=name, number=number, type=kind.TYPE_BYTES, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tutorial.Batch"))


Batch = _message_class()


class SparseServer:
    """All weights, and the lock around them."""

    def __init__(self, width: int) -> None:
        self._lock = threading.Lock()
        self._weights = np.zeros(width, np.float32)
        self.address = ""

    def push_pull(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Steps by a gradient and answers the weights that are wanted."""
        places, wanted = np.frombuffer(request.places, np.int32), np.frombuffer(request.wanted, np.int32)
        gradient = np.frombuffer(request.values, np.float32)
        with self._lock:
            self._weights[places] -= np.float32(LEARNING_RATE) * gradient
            return Batch(values=self._weights[wanted].tobytes())

    def final(self) -> Final:
        """The weights."""
        return Final(self._weights)


@contextmanager
def serve(job: Job, _: int, passes: float, chief: str) -> Iterator[SparseServer]:
    """Serves one training; there is one server."""
    width = open_shards(job.shards).shard(0).features.shape[1]
    model = SparseServer(width)
    handler = grpc.unary_unary_rpc_method_handler(model.push_pull, Batch.FromString, Batch.SerializeToString)
    listener = grpc.server(ThreadPoolExecutor(max_workers=10))
    listener.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"PushPull": handler}),))
    model.address = f"127.0.0.1:{listener.add_insecure_port('127.0.0.1:0')}"
    listener.start()
    try:
        yield model
    finally:
        listener.stop(None).wait()


def work(
    job: Job, rank: int, passes: float, addresses: Sequence[str], ready: Callable[[], None], done: Callable[[], None]
) -> None:
    """Trains; the weights are 0 before the first batch."""
    rows = open_shards(job.shards).shard(rank)
    examples = Examples.of(rows.features, rows.labels)
    objective, weights = Objective(), np.zeros(examples.width, np.float32)
    model = LinearModel(weights, objective, objective.decays(examples.counts))
    orders = [np.random.default_rng([rank, epoch]).permutation(len(examples)) for epoch in range(math.ceil(passes))]
    order = np.concatenate(orders)[: round(passes * len(examples))]
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    with grpc.insecure_channel(addresses[0]) as channel:
        push_pull = channel.unary_unary(f"/{SERVICE}/PushPull", Batch.SerializeToString, Batch.FromString)
        push_pull(Batch())
        ready()
        for batch, following in zip(batches, [*batches[1:], batches[-1][:0]], strict=True):
            gradient, wanted = model.gradient(examples, batch), touched(examples, following)
            places = gradient.places.astype(np.int32)
            answer = push_pull(
                Batch(
                    places=places.tobytes(),
                    values=gradient.values.tobytes(),
                    wanted=wanted.astype(np.int32).tobytes(),
                )
            )
            weights[wanted] = np.frombuffer(answer.values, np.float32)
        done()

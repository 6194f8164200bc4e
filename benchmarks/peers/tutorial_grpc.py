"""The parameter server that people write first: a unary gRPC call, the whole gradient in a protobuf `bytes` field.

Ordinary protobuf messages, numpy for momentum SGD, the message limit raised, and everything else as it comes: default
memory allocation, `tobytes`, no parts. Pushes are folded at once under a lock (asynchronous); with several servers each
holds an equal part of the model and is called at the same time.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, parser, play

LIMITS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
SERVICE = "tutorial.ParameterServer"


def _message_class() -> Any:
    """`message Tensor { bytes data = 1; }` as protoc's generated code would build it."""
    file = descriptor_pb2.FileDescriptorProto(name="tutorial.proto", package="tutorial", syntax="proto3")
    file.message_type.add(name="Tensor").field.add(
        name="data",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tutorial.Tensor"))


Tensor = _message_class()


class ParameterServer:
    """One part of the model, its velocity and the lock around both."""

    def __init__(self, elements: int) -> None:
        self._lock = threading.Lock()
        self._weights = np.zeros(elements, np.float32)
        self._velocity = np.zeros(elements, np.float32)

    def push_pull(self, request: Any, _: grpc.ServicerContext) -> Any:
        """Fold a gradient and answer the weights."""
        gradient = np.frombuffer(request.data, np.float32)
        with self._lock:
            self._velocity = MOMENTUM * self._velocity + gradient + WEIGHT_DECAY * self._weights
            self._weights = self._weights - LEARNING_RATE * self._velocity
            return Tensor(data=self._weights.tobytes())

    def pull(self, _: Any, __: grpc.ServicerContext) -> Any:
        """The weights as they are."""
        with self._lock:
            return Tensor(data=self._weights.tobytes())


def serve(job: Job, server: int, announce: Callable[[str], None]) -> None:
    """A server process."""
    cut = job.cuts()[server]
    model = ParameterServer(cut.stop - cut.start)
    methods = {
        name: grpc.unary_unary_rpc_method_handler(method, Tensor.FromString, Tensor.SerializeToString)
        for name, method in (("PushPull", model.push_pull), ("Pull", model.pull))
    }
    listener = grpc.server(ThreadPoolExecutor(max_workers=10), options=LIMITS)
    listener.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = listener.add_insecure_port("127.0.0.1:0")
    listener.start()
    announce(f"127.0.0.1:{port}")
    listener.wait_for_termination()


class TutorialWorker:
    """A worker with one channel to each server."""

    def __init__(self, job: Job, _: int, addresses: Sequence[str]) -> None:
        self._cuts = job.cuts()
        self._channels = [grpc.insecure_channel(address, options=LIMITS) for address in addresses]
        self._push_pull = [self._method(channel, "PushPull") for channel in self._channels]
        self._pull = [self._method(channel, "Pull") for channel in self._channels]
        self._model = np.zeros(job.elements, np.float32)

    @staticmethod
    def _method(channel: grpc.Channel, name: str) -> Any:
        return channel.unary_unary(f"/{SERVICE}/{name}", Tensor.SerializeToString, Tensor.FromString)

    def iterate(self, gradient: Vector) -> None:
        calls = [
            call.future(Tensor(data=gradient[cut].tobytes()))
            for call, cut in zip(self._push_pull, self._cuts, strict=True)
        ]
        for call, cut in zip(calls, self._cuts, strict=True):
            self._model[cut] = np.frombuffer(call.result().data, np.float32)

    def weights(self) -> Vector:
        return np.concatenate([np.frombuffer(pull(Tensor()).data, np.float32) for pull in self._pull])


def main() -> None:
    job = job_of(parser(__doc__).parse_args())
    folds = job.workers * job.iterations
    play(job, serve, TutorialWorker, servers=job.servers, workers=job.workers, folds=folds)


if __name__ == "__main__":
    main()

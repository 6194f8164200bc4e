"""Predictions over gRPC."""

from concurrent.futures import TimeoutError as TooLate
from typing import Any

import numpy as np

from paceline.core.errors import NotFound, NotYet, TryAgain, UsageError
from paceline.results.serving.batches import Batches
from paceline.results.serving.metrics import ServeMetrics
from paceline.results.serving.served_model import ServedModel
from paceline.v1 import predict_service_pb2 as pb
from paceline.v1.predict_service_pb2_grpc import PredictServiceServicer

PATIENCE = 60.0
"""Longest time that an answer may take (seconds)."""


class PredictServicer(PredictServiceServicer):
    """Thread-safe."""

    def __init__(self, run: str, model: ServedModel, batches: Batches, metrics: ServeMetrics) -> None:
        self._run = run
        self._model = model
        self._batches = batches
        self._metrics = metrics

    def Predict(self, request: pb.PredictRequest, context: Any) -> pb.PredictReply:
        check_run(request.run, self._run)
        waiting = self._batches.submit(self._model.checked(_examples(request, self._model.inputs.dtype)))
        try:
            answer = waiting.result(PATIENCE)
        except TooLate:
            waiting.cancel()
            raise TryAgain(f"The model did not answer within {PATIENCE:.0f} s.") from None
        rows = np.ascontiguousarray(answer.rows, "<f4")
        return pb.PredictReply(labels=answer.labels, shape=rows.shape, outputs=rows.tobytes(), versions=answer.versions)

    def Model(self, request: pb.ModelRequest, context: Any) -> pb.ModelReply:
        check_run(request.run, self._run)
        if self._model.versions is None:
            raise NotYet("There is no model yet: the run has not begun to train. Try again in a moment.")
        inputs = self._model.inputs
        return pb.ModelReply(
            run=self._run,
            task=self._model.task.name,
            versions=self._model.versions,
            age=self._metrics.age(),
            shape=inputs.shape,
            dtype=np.dtype(inputs.dtype).name,
            classes=inputs.classes or (),
        )


def check_run(named: str, run: str) -> None:
    """NotFound where another run is meant."""
    if named and named != run:
        raise NotFound(f"There is no run '{named[:60]}' here; this process serves '{run}'.")


def _examples(request: pb.PredictRequest, usual: str) -> Any:
    """What the request's bytes are. UsageError where these and the shape do not fit."""
    try:
        kind = np.dtype(request.dtype or usual).newbyteorder("<")
    except TypeError:
        raise UsageError(f"{request.dtype[:40]!r} is no type of numpy's; expected one like 'float32'.") from None
    if kind.kind not in "buif":
        raise UsageError(f"The type {kind.name} holds no numbers; expected one like 'float32'.")
    expected = kind.itemsize
    for size in request.shape:
        expected *= size
    if expected != len(request.data):
        raise UsageError(
            f"The request has {len(request.data):,} bytes; expected {expected:,} of the shape {tuple(request.shape)} and "
            f"the type {kind.name}."
        )
    return np.frombuffer(request.data, kind).reshape(tuple(request.shape))

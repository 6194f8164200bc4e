"""Predictions over HTTP: JSON or an array of numpy's in, JSON out, by Starlette."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paceline.core.errors import (
    NotFound,
    NotYet,
    Overloaded,
    PacelineError,
    Stopped,
    TryAgain,
    Unauthenticated,
    UsageError,
)
from paceline.data.dataset import Array
from paceline.results.serving.batches import Batches
from paceline.results.serving.bodies import SMALL, Bodies, TooLarge, TooSlow, as_json, request_of
from paceline.results.serving.metrics import ServeMetrics
from paceline.results.serving.served_model import Answer, ServedModel
from paceline.rpc.auth import Authentication

PATIENCE = 60.0
"""Longest time that an answer may take (seconds)."""
_THREADS = 2
"""For larger requests: each computes all the time, so more of them would only take turns."""
_CODES: Mapping[type[PacelineError], int] = {
    TooLarge: 413,
    TooSlow: 408,
    NotFound: 404,
    UsageError: 400,
    Unauthenticated: 401,
    Overloaded: 503,
    NotYet: 503,
    Stopped: 503,
    TryAgain: 503,
}
_HEADERS = {401: {"www-authenticate": "Bearer"}, 408: {"connection": "close"}, 503: {"retry-after": "1"}}
T = TypeVar("T")


class HttpService:
    """The paths /v1/predict, /v1/model, /healthz and /readyz."""

    def __init__(
        self, run: str, model: ServedModel, batches: Batches, metrics: ServeMetrics, authentication: Authentication
    ) -> None:
        self._run = run
        self._model = model
        self._batches = batches
        self._age = metrics.age
        self._answered = metrics.answered
        self._authentication = authentication
        self._bodies = Bodies()
        self._threads = ThreadPoolExecutor(_THREADS, "requests")
        self.is_closing = False
        """Not ready any more."""
        self.app = Starlette(
            routes=[
                Route("/v1/predict", self._counted(self._predict), methods=["POST"]),
                Route("/v1/model", self._counted(self._describe), methods=["GET"]),
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._ready, methods=["GET"]),
            ]
        )

    def _counted(self, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Around a request's work: the token, the code of an error, the metrics."""

        async def answer(request: Request) -> Response:
            start = time.monotonic()
            found: Response
            try:
                self._authentication.check(request.headers.get("authorization"), "Predict")
                found = await work(request)
            except PacelineError as error:
                found = _refusal(error)
            except ClientDisconnect:
                found = Response(status_code=499)
            self._answered(str(found.status_code), time.monotonic() - start)
            return found

        return answer

    async def _predict(self, request: Request) -> Response:
        async with self._bodies.of(request) as body:
            examples, with_probabilities = await self._apart(len(body), lambda: self._examples(body, request))

        answer = self._batches.submit(examples)
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(answer), PATIENCE)
        except TimeoutError:
            raise TryAgain(f"The model did not answer within {PATIENCE:.0f} s.") from None
        text = await self._apart(found.rows.nbytes, lambda: _text(found, with_probabilities))
        return Response(text, media_type="application/json")

    async def _apart(self, size: int, work: Callable[[], T]) -> T:
        """Returns what the work on that many bytes gives, without holding other requests."""
        if size <= SMALL:  # to hand it to a thread takes longer
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _examples(self, body: bytes, request: Request) -> tuple[Array, bool]:
        """Returns the examples, and whether probabilities are wanted. Raises UsageError."""
        wanted = request_of(body, request.headers.get("content-type", ""), request.query_params)
        named = wanted.get("run") or self._run
        if named != self._run:
            raise NotFound(f"There is no run '{named[:60]}' here; this process serves '{self._run}'.")
        examples = wanted["examples"]
        if isinstance(examples, list):
            self._batches.check_count(len(examples))
        return self._model.checked(examples), bool(wanted.get("probabilities"))

    async def _describe(self, request: Request) -> Response:
        if self._model.versions is None:
            raise NotYet("There is no model yet: the run has not begun to train. Try again in a moment.")
        inputs = self._model.inputs
        found = {
            "run": self._run,
            "task": self._model.task.name,
            "versions": list(self._model.versions),
            "age": self._age(),
            "shape": list(inputs.shape),
            "dtype": np.dtype(inputs.dtype).name,
            "classes": list(inputs.classes or ()),
        }
        return JSONResponse(found)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        if self.is_closing or self._model.versions is None:
            return JSONResponse({"status": "ending" if self.is_closing else "no model yet"}, 503)
        return JSONResponse({"status": "ready", "versions": list(self._model.versions)})


def _refusal(error: PacelineError) -> Response:
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": str(error)}, code, _HEADERS.get(code))


def _text(answer: Answer, with_probabilities: bool) -> str:
    """Returns the answer as JSON."""
    parts = [f'"predictions":{json.dumps(list(answer.labels)) if answer.labels else as_json(answer.rows)}']
    if answer.labels and with_probabilities:
        parts.append(f'"probabilities":{as_json(answer.rows)}')
    return f'{{{",".join(parts)},"versions":{json.dumps(list(answer.versions))}}}'

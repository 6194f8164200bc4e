"""Predictions over HTTP: JSON or an array of numpy's in, JSON out, by Starlette."""

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
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
from paceline.data.npz import loaded
from paceline.results.serving.batches import Batches
from paceline.results.serving.metrics import ServeMetrics
from paceline.results.serving.served_model import Answer, ServedModel
from paceline.rpc.auth import Authentication

PATIENCE = 60.0
"""Longest time that an answer may take (seconds)."""
LARGEST = 8 << 20
"""Largest body of a request (bytes)."""
READ_ON = 8 * LARGEST
"""Of a larger one this much is read before the answer (bytes): a client that still sends gets a reset instead of it."""
_CODES: Mapping[type[PacelineError], int] = {
    NotFound: 404,
    UsageError: 400,
    Unauthenticated: 401,
    Overloaded: 503,
    NotYet: 503,
    Stopped: 503,
    TryAgain: 503,
}
ARRAY = "application/x-npy"
"""Content type of an array as numpy.save writes it: less work than JSON."""
_KEYS = ("examples", "probabilities", "run")


class _TooLarge(UsageError):
    """The body is."""


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

    def _counted(
        self, work: Callable[[Request], Awaitable[dict[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Around a request's work: the token, the code of an error, the metrics."""

        async def answer(request: Request) -> Response:
            start = time.monotonic()
            found: Response
            try:
                self._authentication.check(request.headers.get("authorization"), "Predict")
                found = JSONResponse(await work(request))
            except PacelineError as error:
                found = _refusal(error)
            except ClientDisconnect:
                found = Response(status_code=499)
            self._answered(str(found.status_code), time.monotonic() - start)
            return found

        return answer

    async def _predict(self, request: Request) -> dict[str, Any]:
        asked = await _request_of(request)
        named = asked.get("run") or self._run
        if named != self._run:
            raise NotFound(f"There is no run '{named[:60]}' here; this process serves '{self._run}'.")
        answer = self._batches.submit(self._model.checked(asked["examples"]))
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(answer), PATIENCE)
        except TimeoutError:
            raise TryAgain(f"The model did not answer within {PATIENCE:.0f} s.") from None
        return _plain(found, bool(asked.get("probabilities")))

    async def _describe(self, request: Request) -> dict[str, Any]:
        if self._model.versions is None:
            raise NotYet("There is no model yet: the run has not begun to train. Try again in a moment.")
        inputs = self._model.inputs
        return {
            "run": self._run,
            "task": self._model.task.name,
            "versions": list(self._model.versions),
            "age": self._age(),
            "shape": list(inputs.shape),
            "dtype": np.dtype(inputs.dtype).name,
            "classes": list(inputs.classes or ()),
        }

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        if self.is_closing or self._model.versions is None:
            return JSONResponse({"status": "ending" if self.is_closing else "no model yet"}, 503)
        return JSONResponse({"status": "ready", "versions": list(self._model.versions)})


def _refusal(error: PacelineError) -> Response:
    code = (
        413
        if isinstance(error, _TooLarge)
        else next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
    )
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(code)
    return JSONResponse({"error": str(error)}, code, headers)


async def _request_of(request: Request) -> dict[str, Any]:
    """Returns what a request asks for: an object of JSON, or an array with the rest in the query. Raises UsageError."""
    body = await _body(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() == ARRAY:
        return {"examples": _array(body), **_query(request)}

    expected = 'expected an object like {"examples": [[0.5, 1.0], [2.0, 0.0]]}'
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The request is no JSON ({error}); {expected}.") from None
    if not isinstance(found, dict) or "examples" not in found:
        raise UsageError(f"The request has no 'examples'; {expected}.")
    if strange := [key for key in found if key not in _KEYS]:
        raise UsageError(f"The request has '{strange[0][:40]}'; expected only {', '.join(_KEYS)}.")
    if not isinstance(found.get("run") or "", str):
        raise UsageError("The request's 'run' is no text; expected the name of a run, or nothing.")
    return found


async def _body(request: Request) -> bytes:
    """Returns the bytes of a request. Raises UsageError where they are too many."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > READ_ON:
            break
        if size <= LARGEST:
            parts.append(part)
    if size > LARGEST:
        raise _TooLarge(f"The request has more than {LARGEST:,} bytes. Send the examples in parts.")
    return b"".join(parts)


def _query(request: Request) -> dict[str, Any]:
    """Returns what the query says of an array. Raises UsageError where it says anything else."""
    query = dict(request.query_params)
    if strange := [key for key in query if key not in _KEYS[1:]]:
        raise UsageError(f"The query has '{strange[0][:40]}'; expected only {' and '.join(_KEYS[1:])}.")
    asked = query.get("probabilities", "false")
    if asked not in ("true", "false"):
        raise UsageError(f"The query's probabilities are '{asked[:40]}'; expected true or false.")
    return {"run": query.get("run"), "probabilities": asked == "true"}


def _array(body: bytes) -> Any:
    """Returns the array that numpy.save has written. Raises UsageError."""
    expected = "expected numbers, like float32, as numpy.save writes them"
    if not body.startswith(MAGIC_PREFIX):
        raise UsageError(f"The request is no .npy file; {expected}.")
    try:
        found = loaded(io.BytesIO(body))
    except Exception as error:  # numpy lets others through than ValueError
        raise UsageError(
            f"The request's .npy file can't be read ({error or type(error).__name__}); {expected}."
        ) from None
    if found.dtype.kind not in "buif":
        raise UsageError(f"The request's array is of {found.dtype.name}; {expected}.")
    return found


def _plain(answer: Answer, with_probabilities: bool) -> dict[str, Any]:
    """For JSON, which knows neither NaN nor infinity."""
    rows: Any = answer.rows.tolist()
    if not np.isfinite(answer.rows).all():
        rows = [[value if np.isfinite(value) else None for value in row] for row in rows]
    found: dict[str, Any] = {"predictions": list(answer.labels) or rows}
    if answer.labels and with_probabilities:
        found["probabilities"] = rows
    return found | {"versions": list(answer.versions)}

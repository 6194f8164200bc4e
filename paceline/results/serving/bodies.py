"""Bodies of requests: read within their limits, taken apart without holding Python's lock."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX
from starlette.requests import Request

from paceline.core.errors import Overloaded, UsageError
from paceline.data.npz import loaded

LARGEST = 8 << 20
"""Largest body of a request (bytes)."""
SMALL = 16 << 10
"""A smaller one waits for no other (bytes)."""
AT_A_TIME = 8
"""Most larger ones that are read and taken apart at a time; others wait, unread."""
READ_ON = 8 * LARGEST
"""Of a larger one this much is read before the answer (bytes): a client that still sends gets a reset instead of it."""
WITHIN = 60.0
"""Longest time that a body may take to come (seconds)."""
MOST_PARTS = 250_000
"""Most lists, objects and texts of a body of JSON: its parser makes them all before others get their turn."""
ARRAY = "application/x-npy"
"""Content type of an array as numpy.save writes it: less work than JSON."""
_KEYS = ("examples", "probabilities", "run")


class TooLarge(UsageError):
    """The body is."""


class TooSlow(UsageError):
    """The body is."""


class Bodies:
    """Reads bodies; of the large ones, few at a time have bytes here."""

    def __init__(self, at_a_time: int = AT_A_TIME, within: float = WITHIN) -> None:
        self._at_a_time = at_a_time
        self._within = within
        self._seats = asyncio.Semaphore(at_a_time)

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """Gives the bytes of a request, which has a seat meanwhile. Raises TooLarge, TooSlow, or Overloaded where no seat
        becomes free."""
        if int(request.headers.get("content-length", LARGEST)) <= SMALL:
            yield await self._read(request)
            return

        try:
            await asyncio.wait_for(self._seats.acquire(), self._within)
        except TimeoutError:
            raise Overloaded(
                f"{self._at_a_time} other large requests have taken {self._within:g} s. Try again in a moment, or start more "
                "replicas."
            ) from None
        try:
            yield await self._read(request)
        finally:
            self._seats.release()

    async def _read(self, request: Request) -> bytes:
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._within):
                async for part in request.stream():
                    size += len(part)
                    if size > READ_ON:
                        break
                    if size <= LARGEST:
                        parts.append(part)
        except TimeoutError:
            raise TooSlow(
                f"Only {size:,} bytes of the request came within {self._within:g} s. Send it at once, or fewer examples at a "
                "time."
            ) from None
        if size > LARGEST:
            raise TooLarge(f"The request has more than {LARGEST:,} bytes. Send the examples in parts.")
        return b"".join(parts)


def request_of(body: bytes, content_type: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a request asks for: an object of JSON, or an array with the rest in the query. Raises UsageError."""
    if content_type.partition(";")[0].strip() == ARRAY:
        return {"examples": _array(body), **_query(query)}

    parts = sum(map(body.count, b'[{"'))
    if parts > MOST_PARTS:
        raise UsageError(
            f"The request has {parts:,} lists, objects and texts; at most {MOST_PARTS:,} are read. Send each example as a flat "
            "row of numbers, or an array."
        )
    expected = 'expected an object like {"examples": [[0.5, 1.0], [2.0, 0.0]]}'
    try:
        found = json.loads(body, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The request is no JSON ({error}); {expected}.") from None
    if not isinstance(found, dict) or "examples" not in found:
        raise UsageError(f"The request has no 'examples'; {expected}.")
    if strange := [key for key in found if key not in _KEYS]:
        raise UsageError(f"The request has '{strange[0][:40]}'; expected only {', '.join(_KEYS)}.")
    if not isinstance(found.get("run") or "", str):
        raise UsageError("The request's 'run' is no text; expected the name of a run, or nothing.")
    return found


def as_json(rows: npt.NDArray[Any]) -> str:
    """Returns the rows as JSON, which knows neither NaN nor infinity; a row at a time, so that others get their turn."""
    texts = []
    for row in rows:
        values = (
            row.tolist() if np.isfinite(row).all() else [each if np.isfinite(each) else None for each in row.tolist()]
        )
        texts.append(json.dumps(values, separators=(",", ":")))
    return f"[{','.join(texts)}]"


def _float(text: str) -> float:
    """Returns the number. Python lets other threads run when it enters a function of Python's, but json's parser alone
    would hold its lock for the whole body."""
    return float(text)


def _int(text: str) -> int:
    return int(text)


def _query(query: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the query says of an array. Raises UsageError where it says anything else."""
    if strange := [key for key in query if key not in _KEYS[1:]]:
        raise UsageError(f"The query has '{strange[0][:40]}'; expected only {' and '.join(_KEYS[1:])}.")
    probabilities = query.get("probabilities", "false")
    if probabilities not in ("true", "false"):
        raise UsageError(f"The query's probabilities are '{probabilities[:40]}'; expected true or false.")
    return {"run": query.get("run"), "probabilities": probabilities == "true"}


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

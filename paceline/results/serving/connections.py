"""Connections of `paceline serve`: how many there may be, and how large and how slow the headers of a request."""

import asyncio
import json
import sys
import time

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

MOST = 512
"""Most connections at a time; a process may often have no more than 1,024 files open."""
LARGEST_HEADERS = 16 << 10
"""Of a request (bytes)."""
WITHIN = 10.0
"""Longest time from a connection, or from the first byte of a further request, to the end of the headers (seconds)."""


class Connection(H11Protocol):  # type: ignore[misc]
    """One that gives way to others while it has no request under way."""

    most = MOST
    within = WITHIN
    _since = 0.0
    _clock: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nobody waits here for an answer."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_headers()
        others = [each for each in self.connections if not each.transport.is_closing()]
        if len(others) > self.most:
            silent = [each for each in others if isinstance(each, Connection) and each.is_silent]
            # who came first and has asked nothing yet, so that a flood of connections does not keep out /healthz
            min(silent, key=lambda each: (each.cycle is not None, each._since)).refuse(
                503, f"There are {self.most} connections already. Try again in a moment, or start more replicas."
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._has_headers()
        elif self._clock is None:
            self._await_headers()

    def send_400_response(self, msg: str) -> None:
        """Says what is wrong with the headers, instead of the same sentence for all."""
        if getattr(sys.exc_info()[1], "error_status_hint", 400) == 431:
            self.refuse(431, f"The headers of the request have more than {LARGEST_HEADERS:,} bytes. Send fewer.")
        else:
            self.refuse(400, "This is no request of HTTP/1.1. Send one.")

    def refuse(self, code: int, text: str) -> None:
        """Answers with this code, where no answer has begun, and hangs up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": text}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
                *([("retry-after", "1")] if code == 503 else []),
            ]
            response = h11.Response(status_code=code, headers=headers, reason=STATUS_PHRASES[code])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_headers(self) -> None:
        self._since = time.monotonic()
        self._clock = self.loop.call_later(
            self.within, self.refuse, 408, f"The headers of a request did not come within {self.within:g} s."
        )

    def _has_headers(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

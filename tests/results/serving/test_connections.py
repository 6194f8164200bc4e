"""Connections of `paceline serve`: those that say nothing give way, and each hears why."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from starlette.applications import Starlette  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import PlainTextResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from paceline.core.errors import Overloaded, PacelineError  # noqa: E402
from paceline.results.serving.bodies import LARGEST, Bodies, TooSlow  # noqa: E402
from paceline.results.serving.connections import LARGEST_HEADERS, Connection  # noqa: E402

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"


def served(test: Callable[[Callable[[], Awaitable[Streams]]], Awaitable[None]], **limits: Any) -> None:
    """Runs the test with a server with these limits; what it gets opens a connection."""
    kind = type("Small", (Connection,), limits)

    async def run() -> None:
        app = Starlette(routes=[Route("/healthz", lambda request: PlainTextResponse("alive"))])
        settings = uvicorn.Config(
            app, http=kind, port=0, lifespan="off", log_config=None, h11_max_incomplete_event_size=LARGEST_HEADERS
        )
        server = uvicorn.Server(settings)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        await test(lambda: asyncio.open_connection("127.0.0.1", port))
        server.should_exit = True
        await serving

    asyncio.run(run())


async def answer(streams: Streams) -> tuple[int, str]:
    """Returns the code and the error of an answer that hangs up."""
    head, _, body = (await streams[0].read()).decode().partition("\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (b"", 408, "did not come within 0.2 s"),
        (HEALTH, 408, "did not come within 0.2 s"),
        (HEALTH + b"\r\n", 408, "did not come within 0.2 s"),
        (HEALTH + b"X: " + b"x" * LARGEST_HEADERS, 431, "more than 16,384 bytes"),
        (b"word\r\n\r\n", 400, "This is no request of HTTP/1.1"),
    ],
)
def test_headers_that_do_not_come_or_are_too_much_are_refused(sent: bytes, code: int, told: str) -> None:
    async def test(connect: Callable[[], Awaitable[Streams]]) -> None:
        streams = await connect()
        streams[1].write(sent)
        if sent.endswith(HEALTH + b"\r\n"):  # a further request comes slowly, too
            await streams[0].readuntil(b"alive")
            streams[1].write(HEALTH)
        found, error = await answer(streams)

        assert (found, told in error) == (code, True), error

    served(test, within=0.2)


def test_the_longest_silent_connection_gives_way_to_a_new_one() -> None:
    async def test(connect: Callable[[], Awaitable[Streams]]) -> None:
        first, second = await connect(), await connect()
        third = await connect()
        third[1].write(HEALTH + b"\r\n")

        assert b"alive" in await third[0].readuntil(b"alive")
        code, error = await answer(first)
        assert (code, "There are 2 connections already" in error) == (503, True)
        second[1].write(HEALTH + b"\r\n")
        assert b"alive" in await second[0].readuntil(b"alive")

    served(test, most=2)


def test_large_bodies_wait_for_a_seat_and_slow_ones_lose_it() -> None:
    async def run() -> None:
        bodies, ends = Bodies(at_a_time=1, within=0.2), list[PacelineError]()

        async def never() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def sent() -> dict[str, Any]:
            return {"type": "http.request", "body": b"1", "more_body": False}

        def request(size: int, receive: Callable[[], Awaitable[dict[str, Any]]]) -> Request:
            return Request({"type": "http", "headers": [(b"content-length", b"%d" % size)]}, receive)

        async def read(receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
            try:
                async with bodies.of(request(LARGEST, receive)):
                    pass
            except PacelineError as error:
                ends.append(error)

        await asyncio.gather(read(never), read(sent))
        assert {type(error) for error in ends} <= {TooSlow, Overloaded}
        (slow,) = (
            error for error in ends if isinstance(error, TooSlow)
        )  # the other waits as long, and may be the first
        assert "Only 0 bytes of the request came within 0.2 s" in str(slow)
        await read(sent)  # the seat is free again
        assert len(ends) <= 2

        async with bodies.of(request(LARGEST, sent)), bodies.of(request(1, sent)) as small:
            assert small == b"1"

    asyncio.run(run())

"""Messages however they are cut and framed arrive as stock protobuf reads them; bytes that are damaged do no harm."""

import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.rpc.lane import frames
from paceline.rpc.lane.messages import Held
from paceline.rpc.lane.stream import Stream
from paceline.rpc.wire import parse, varint
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.lane_peer import UNTOUCHED, Lane, Peer, data, push
from tests.support.nights import some

MUTANTS, AT_NIGHT = 800, 4800
"""Of frames, and as many of messages."""
SIZES = st.sampled_from([0, 1, 7, 127, 128, 4000, 4085, 4096, 4097, 9000, 20_000])
HEAD = pb.PushHead(worker="worker-0", clock=7, elements=3).SerializeToString()


@st.composite
def fields(draw: st.DrawFn, may_have_head: bool) -> bytes:
    """A part's fields in any order: each may be missing, all but the head may come twice, strangers may be between."""
    content = bytes(draw(st.integers(0, 255)) for _ in range(3)) * (draw(SIZES) // 3 + 1)
    offset = draw(st.integers(0, 2**64 - 1) | st.integers(0, 300))
    chosen = [
        b"\x10" + varint(offset),
        b"\x7a" + varint(len(content)) + content,
        b"\x10" + varint(offset >> 1),
        b"\x7a\x01x",
        b"\x98\x06\x05",  # field 99
    ]
    present = draw(st.sampled_from([[], [0], [1], [0, 1], [0, 1, 4], [2, 0, 1], [0, 3, 1]]))
    parts = [chosen[number] for number in present]
    if may_have_head and draw(st.booleans()):
        parts.insert(0, b"\x0a" + varint(len(HEAD)) + HEAD)
    if draw(st.booleans()):
        parts = draw(st.permutations(parts))
    return b"".join(parts)


class Parts:
    """A sink that keeps what it is given; as a server does, it has places for some parts and none for others."""

    def __init__(self, has_places: bool) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self._has_places = has_places

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return memoryview(bytearray(length)) if self._has_places else None

    def take(self, offset: int, data: memoryview) -> None:
        self.taken.append((offset, bytes(data)))


def cuts(draw: st.DrawFn, length: int) -> list[int]:
    """Where DATA frames begin and end."""
    every = draw(
        st.sampled_from([1, 2, 5, 4096, 16_384, 1 << 20]) if length < 2000 else st.sampled_from([3000, 16_384, 1 << 20])
    )
    drawn = draw(st.lists(st.integers(0, length), max_size=8))
    return sorted({0, *range(0, length, every), *drawn, length})


@given(st.data())
def test_parts_arrive_as_protobuf_reads_them_however_they_are_cut_and_ordered(drawn: st.DataObject) -> None:
    draw: Any = drawn.draw
    messages = [draw(fields(may_have_head=not number)) for number in range(draw(st.integers(1, 4)))]
    raw = b"".join(len(message).to_bytes(5, "big") + message for message in messages)
    places = cuts(draw, len(raw))
    earliest = draw(st.integers(0, len(places) - 1))
    stream, sink, is_attached = Stream(1, 0), Parts(draw(st.booleans())), False
    for number, (start, end) in enumerate(pairwise(places)):
        if number >= earliest and stream.first.is_set() and not is_attached:
            stream.attach(sink)
            is_attached = True
        stream.feed(Held(bytearray(raw[start:end])), end - start)
    stream.got_all()
    if not is_attached:
        stream.attach(sink)
    expected = [pb.PushPullRequest.FromString(message) for message in messages]
    assert stream.failure is None
    assert sink.taken == [(part.offset, part.data) for part in expected if part.data]
    assert sink.taken == [(part.offset, bytes(part.data)) for part in map(parse, messages) if len(part.data)]
    assert pb.PushHead.FromString(stream.head) == expected[0].head


def flipped(random: random.Random, raw: bytes) -> bytes:
    out = bytearray(raw)
    for _ in range(random.choice((1, 1, 4, 32))):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def truncated(random: random.Random, raw: bytes) -> bytes:
    return raw[: random.randrange(len(raw))]


def duplicated(random: random.Random, raw: bytes) -> bytes:
    start = random.randrange(len(raw))
    end = start + random.choice((1, 9, 100, 5000))
    return raw[:end] + raw[start:]


def swapped(random: random.Random, raw: bytes) -> bytes:
    first, middle, last = sorted(random.randrange(len(raw)) for _ in range(3))
    return raw[:first] + raw[middle:last] + raw[first:middle] + raw[last:]


MUTATIONS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flip": flipped,
    "truncate": truncated,
    "duplicate": duplicated,
    "swap": swapped,
}


def cut_at_random(random: random.Random, raw: bytes) -> list[bytes]:
    """DATA frames, the last one with the stream's end."""
    size = random.choice((700, 5000, 16_384, 1 << 20))
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)] or [b""]
    return [data(1, piece, end=number == len(pieces) - 1) for number, piece in enumerate(pieces)]


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What threads died of."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda facts: found.append(facts.exc_value))
    yield found
    assert found == []


@pytest.mark.parametrize("mutants", some([MUTANTS, AT_NIGHT], [MUTANTS]))
@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("level", ["frames", "messages"])
def test_damaged_bytes_crash_nothing_fold_nothing_partial_and_leave_nothing_behind(
    level: str, kind: str, mutants: int, crashes: list[Any]
) -> None:
    lane, mutate, dice = Lane(), MUTATIONS[kind], random.Random(f"{level} {kind} {mutants}")
    lane.serves()
    threads, whole = threading.active_count(), b"".join(push())
    count = mutants // len(MUTATIONS)
    for _ in range(count):
        peer = Peer(lane.port)
        name = dice.choice(
            ("PushPull", "PushPull", "Push", "Initialise", "Ask", "Pull", "Resume", "ExchangeSparse", "AskSparse")
        )
        if level == "frames":
            peer.send(mutate(dice, peer.headers(name=name) + b"".join(cut_at_random(dice, whole))))
        else:
            peer.send(peer.headers(name=name), *cut_at_random(dice, mutate(dice, whole)))
        peer.ends_sending()
        for _ in peer.frames():
            pass
        peer.close()
    lane.is_quiet()
    print(f"{count} streams with a {kind} of {level}; {len(lane.slice.folded)} pushes were whole anyway")
    for values in lane.slice.folded:
        assert not (values.view(np.uint32) == UNTOUCHED.view(np.uint32)).any()
    if kind == "truncate":
        assert len(lane.slice.folded) == 1
    assert "INTERNAL" not in {status for _, status in lane.outcomes()}
    assert threading.active_count() <= threads + lane.threads
    lane.serves()
    lane.close()


def test_random_bytes_after_the_hello_crash_nothing(crashes: list[Any]) -> None:
    lane, dice = Lane(), random.Random(3)
    for _ in range(200):
        kind, flags, number = dice.randrange(11), dice.randrange(256), dice.choice((0, 1, 1, 3))
        peer = Peer(lane.port)
        peer.send(peer.headers())
        peer.send(
            *[frames.frame(kind, flags, number, dice.randbytes(dice.choice((0, 4, 5, 6, 8, 30)))) for _ in range(5)]
        )
        peer.ends_sending()
        for _ in peer.frames():
            pass
        peer.close()
    lane.is_quiet()
    assert lane.slice.folded == []
    lane.serves()
    lane.close()

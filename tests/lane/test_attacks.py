"""What a hostile or broken peer may do to the lane: each costs little, ends with a clean code, and a good client is served."""

import random
import resource
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import psutil
import pytest

from paceline.rpc.bounds import MOST_BYTES
from paceline.rpc.lane import connection, frames, headers, server
from paceline.rpc.lane.frames import Code, Kind, Setting
from paceline.rpc.lane.grpc_texts import STATUS
from paceline.rpc.lane.stream import UNOPENED
from paceline.rpc.outages import Outage
from paceline.rpc.retries import retried
from paceline.rpc.watchdog import IDLE
from paceline.v1 import parameter_service_pb2 as pb
from tests.lane.test_lane_metrics import reasons, value
from tests.support.lane_peer import SOON, VALUES, Lane, Peer, data, pull, push

Start = Callable[..., Lane]
FLOOD = 2000
"""Frames of a flood: more than are taken at once."""
GONE = ("CANCELLED", "UNAVAILABLE")
"""Outcomes of a call whose caller has gone: seen by the reader, or by the sender."""
NO_WINDOW = frames.settings_frame({Setting.INITIAL_WINDOW_SIZE: 0})
WINDOW = frames.settings_frame({Setting.INITIAL_WINDOW_SIZE: frames.MOST_WINDOW})


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Lane] = []

    def begin(threads: int = 8) -> Lane:
        started.append(Lane(threads))
        return started[-1]

    yield begin
    for lane in started:
        lane.close()


@pytest.fixture
def lane(start: Start) -> Lane:
    return start()


@pytest.fixture
def peer(lane: Lane) -> Iterator[Peer]:
    """Attacks; afterwards a good client is served, and nothing is left of the attack."""
    attacker = Peer(lane.port)
    yield attacker
    lane.serves()
    attacker.close()
    lane.is_quiet()
    assert (value(lane.traffic, "connections"), value(lane.traffic, "streams")) == (0, 0)


def block(number: int, payload: bytes, flags: int = frames.END_HEADERS) -> bytes:
    return frames.frame(Kind.HEADERS, flags, number, payload)


def continuation(payload: bytes, flags: int = 0) -> bytes:
    return frames.frame(Kind.CONTINUATION, flags, 1, payload)


def literal(name: bytes, value: bytes) -> bytes:
    """A header field that is put into the table (HPACK, without Huffman; lengths below 127 and of any size)."""
    return b"\x40" + bytes((len(name),)) + name + _integer(len(value)) + value


def _integer(number: int) -> bytes:
    if number < 127:
        return bytes((number,))
    rest, out = number - 127, bytearray((127,))
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*out, rest))


def bomb(peer: Peer) -> bytes:
    """4 KB in the table, named 10,000 times: 40 MB of header fields."""
    return block(1, literal(b"x", b"y" * 4000) + b"\xbe" * 10_000)


def reset_flood(peer: Peer) -> bytes:
    one = lambda number: peer.headers(number) + frames.reset(number, Code.CANCEL)  # noqa: E731
    return b"".join(one(number) for number in range(1, 2 * FLOOD, 2))


def settings_of(count: int) -> bytes:
    return frames.frame(Kind.SETTINGS, 0, 0, bytes((0, 9, 0, 0, 0, 0)) * count)


CALM = Code.ENHANCE_YOUR_CALM
CONNECTION = {
    "a header bomb": (bomb, CALM),
    "a header block in one frame that is too large": (lambda peer: block(1, literal(b"x", b"y" * headers.MOST)), CALM),
    "a header block in many frames that is too large": (
        lambda peer: block(1, literal(b"x", b"y" * 15_000), 0) + continuation(b"\xbe" * 10_000) * 3,
        CALM,
    ),
    "endless empty CONTINUATION": (lambda peer: block(1, b"", 0) + continuation(b"") * FLOOD, CALM),
    "endless CONTINUATION of a byte": (lambda peer: block(1, b"\x82", 0) + continuation(b"\x82") * FLOOD, CALM),
    "a block interrupted by another stream's": (
        lambda peer: block(1, b"\x82", 0) + block(3, b"\x82"),
        Code.PROTOCOL_ERROR,
    ),
    "header fields that are no HPACK": (lambda peer: block(1, b"\xff" * 40), Code.COMPRESSION_ERROR),
    "a header table beyond what was agreed": (lambda peer: block(1, b"\x3f\xe1\xff\x03\x82"), Code.COMPRESSION_ERROR),
    "SETTINGS flood": (lambda peer: frames.settings_frame({}) * FLOOD, CALM),
    "a SETTINGS frame with thousands of settings": (lambda peer: settings_of(headers.MOST // 6 + 1), CALM),
    "PING flood": (lambda peer: frames.frame(Kind.PING, 0, 0, b"12345678") * FLOOD, CALM),
    "PRIORITY flood": (lambda peer: frames.frame(Kind.PRIORITY, 0, 1, bytes(5)) * FLOOD, CALM),
    "WINDOW_UPDATE flood": (lambda peer: frames.window_update(0, 1) * FLOOD, CALM),
    "flood of frames of an unknown kind": (lambda peer: frames.frame(99, 0, 0) * FLOOD, CALM),
    "rapid reset": (reset_flood, CALM),
    "zero-length DATA flood": (lambda peer: peer.headers() + data(1, b"") * FLOOD, CALM),
    "flood of DATA with nothing but padding": (
        lambda peer: peer.headers() + data(1, b"\1\0", flags=frames.PADDED) * FLOOD,
        CALM,
    ),
    "calls that are all malformed": (
        lambda peer: b"".join(peer.headers(number, te="gzip") for number in range(1, 2 * FLOOD, 2)),
        CALM,
    ),
    "connection window overflow": (lambda peer: frames.window_update(0, frames.MOST_WINDOW), Code.FLOW_CONTROL_ERROR),
    "connection window grows by nothing": (lambda peer: frames.window_update(0, 0), Code.PROTOCOL_ERROR),
    "all windows overflow by a setting": (
        lambda peer: peer.headers() + frames.window_update(1, 1 << 30) + WINDOW,
        Code.FLOW_CONTROL_ERROR,
    ),
    "padding longer than its frame of DATA": (
        lambda peer: peer.headers() + data(1, b"\x05abc", flags=frames.PADDED),
        Code.PROTOCOL_ERROR,
    ),
    "padding longer than its frame of HEADERS": (
        lambda peer: block(1, b"\x05\x82", frames.END_HEADERS | frames.PADDED),
        Code.PROTOCOL_ERROR,
    ),
    "a padded frame without a length of padding": (
        lambda peer: peer.headers() + data(1, b"", flags=frames.PADDED),
        Code.FRAME_SIZE_ERROR,
    ),
    "an absurdly long frame": (
        lambda peer: peer.headers() + frames.frame_header(frames.MOST_FRAME, Kind.DATA, 0, 1),
        Code.FRAME_SIZE_ERROR,
    ),
    "data on a stream that was never opened": (lambda peer: data(5, b"abc"), Code.PROTOCOL_ERROR),
    "data on a stream that it has reset": (
        lambda peer: peer.headers() + frames.reset(1, Code.CANCEL) + data(1, b"abc"),
        Code.STREAM_CLOSED,
    ),
    "a call on a stream with an even number": (lambda peer: peer.headers(2), Code.PROTOCOL_ERROR),
    "a call on a stream before the last one": (
        lambda peer: peer.headers(5) + frames.reset(5, Code.CANCEL) + peer.headers(3),
        Code.STREAM_CLOSED,
    ),
    "a reset of a stream that was never opened": (lambda peer: frames.reset(5, Code.CANCEL), Code.PROTOCOL_ERROR),
    "a promise of a push": (
        lambda peer: peer.headers() + frames.frame(Kind.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(8)),
        Code.PROTOCOL_ERROR,
    ),
    "garbage after the preface": (lambda peer: random.Random(1).randbytes(4096), Code.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("attack", CONNECTION)
def test_a_peer_that_breaks_the_connections_rules_is_told_why_and_cut_off(peer: Peer, lane: Lane, attack: str) -> None:
    make, code = CONNECTION[attack]
    peer.send(make(peer))
    assert peer.goaway() == code
    assert list(peer.frames()) == []
    assert reasons(lane.traffic, "cut_offs") == {("sent", code.name): 1}


STREAM = {
    "a window that grows by nothing": (lambda peer: peer.headers() + frames.window_update(1, 0), Code.PROTOCOL_ERROR),
    "a window that overflows": (
        lambda peer: peer.headers() + frames.window_update(1, frames.MOST_WINDOW),
        Code.FLOW_CONTROL_ERROR,
    ),
    "data beyond the window": (lambda peer: peer.headers() + data(1, bytes(UNOPENED + 1)), Code.FLOW_CONTROL_ERROR),
    "data after the end": (
        lambda peer: NO_WINDOW + peer.headers(name="Pull") + data(1, pull(), end=True) + data(1, b"a"),
        Code.STREAM_CLOSED,
    ),
    "data of another length than was announced": (
        lambda peer: peer.headers(**{"content-length": "7"}) + data(1, b"123456", end=True),
        Code.PROTOCOL_ERROR,
    ),
    "header fields that are none": (lambda peer: peer.headers(te="gzip"), Code.PROTOCOL_ERROR),
    "a field in capital letters": (lambda peer: peer.headers(**{"X": "y"}), Code.PROTOCOL_ERROR),
    "a call without a path": (lambda peer: peer.headers(**{":path": ""}), Code.PROTOCOL_ERROR),
    "trailers in the middle": (lambda peer: peer.headers() + peer.headers(), Code.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("attack", STREAM)
def test_a_peer_that_breaks_a_streams_rules_loses_the_stream_and_is_told_why(
    peer: Peer, lane: Lane, attack: str
) -> None:
    make, code = STREAM[attack]
    peer.send(make(peer))
    assert peer.reset() == code
    peer.answers_a_ping()
    assert reasons(lane.traffic, "resets") == {("sent", code.name): 1}
    assert reasons(lane.traffic, "cut_offs") == {}


HELLOS = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "no SETTINGS": frames.PREFACE + frames.frame(Kind.PING, 0, 0, bytes(8)),
    "an answer to SETTINGS": frames.PREFACE + frames.frame(Kind.SETTINGS, frames.ACK, 0),
}


@pytest.mark.parametrize("hello", HELLOS)
def test_a_peer_that_does_not_begin_as_http2_does_is_told_so(lane: Lane, hello: str) -> None:
    peer = Peer(lane.port, HELLOS[hello])
    assert peer.goaway() == Code.PROTOCOL_ERROR
    assert list(peer.frames()) == []
    peer.close()
    lane.serves()


FIRST, SECOND, THIRD = push()
CALLS = {
    "no message at all": ("PushPull", b""),
    "a message that is compressed": ("PushPull", b"\1" + FIRST[1:]),
    "a message of 4 GiB": ("PushPull", b"\0\xff\xff\xff\xff" + FIRST[5:]),
    "a message beyond the limit": ("PushPull", FIRST + b"\0" + (MOST_BYTES + 1).to_bytes(4, "big") + SECOND[5:]),
    "a head of 20 KB": ("PushPull", push(head=pb.PushHead(worker="w" * 20_000))[0]),
    "a head that is longer than its message": ("PushPull", b"\0\0\0\0\4\x0a\x7fab" + FIRST),
    "a head that is none": ("PushPull", b"\0\0\0\0\4\x0a\x02\xff\xff"),
    "parts that are too few": ("PushPull", FIRST + SECOND),
    "parts that end in the middle of one": ("PushPull", FIRST + SECOND + THIRD[:-1]),
    "parts that end in the middle of a prefix": ("PushPull", FIRST + SECOND + THIRD[:3]),
    "a whole push and then half a message": ("PushPull", FIRST + SECOND + THIRD + SECOND[:9]),
    "parts in another order": ("PushPull", FIRST + THIRD + SECOND),
    "a part that comes twice": ("PushPull", FIRST + SECOND + SECOND + THIRD),
    "the first part twice": ("Push", FIRST + FIRST + SECOND + THIRD),
    "more than the slice": ("Initialise", FIRST + SECOND + THIRD + THIRD),
    "garbage for parts": ("PushPull", FIRST + random.Random(2).randbytes(15_000)),
    "two messages where one is due": ("Resume", b"\0\0\0\0\0" * 2),
    "endless messages where one is due": ("Resume", b"\0\0\0\0\0" * 10_000),
    "no message where one is due": ("Pull", b""),
    "no message where some are due": ("ExchangeSparse", b""),
    "endless messages where each is due after an answer": ("ExchangeSparse", b"\0\0\0\0\0" * 10_000),
    "an exchange and then half a message": ("ExchangeSparse", b"\0\0\0\0\0\0\0\0\0\7abc"),
    "a message that is no request": ("Resume", b"\0\0\0\0\3\x0a\x7fa"),
    "a call that does not exist": ("Fold", FIRST),
}


@pytest.mark.parametrize("attack", CALLS)
def test_a_call_that_is_wrong_is_refused_by_its_status_and_nothing_is_folded(
    peer: Peer, lane: Lane, attack: str
) -> None:
    name, payload = CALLS[attack]
    pieces = [payload[at : at + 10_000] for at in range(0, len(payload), 10_000)]
    peer.send(peer.headers(name=name), *[data(1, piece) for piece in pieces], data(1, b"", end=True))
    found = peer.trailers()
    assert found["grpc-status"] == str(STATUS["UNIMPLEMENTED" if name == "Fold" else "INVALID_ARGUMENT"])
    assert found["grpc-message"]
    assert lane.slice.folded == []
    peer.answers_a_ping()


def test_a_caller_whose_push_is_refused_early_hears_why_although_it_is_still_sending(peer: Peer) -> None:
    peer.send(peer.headers(), data(1, FIRST))
    peer.next(Kind.WINDOW_UPDATE, lambda frame: frame[2] == 1)
    peer.send(data(1, THIRD))
    for _ in range(20):
        peer.send(data(1, bytes(50_000)))
    assert peer.trailers()["grpc-status"] == str(STATUS["INVALID_ARGUMENT"])
    peer.answers_a_ping()


@pytest.mark.parametrize(
    "name", ["PushPull", "Push", "Initialise", "Ask", "Pull", "PushPullSparse", "ExchangeSparse", "AskSparse", "Resume"]
)
@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_call_without_the_token_is_refused_before_more_than_its_first_window_may_come(
    peer: Peer, lane: Lane, name: str, token: str
) -> None:
    peer.send(peer.headers(name=name, token=token), data(1, FIRST))
    seen = []
    for frame in peer.frames():
        seen.append(frame)
        if frame[0] == Kind.RST_STREAM:
            break
    peer.send(data(1, SECOND))  # was on its way
    peer.answers_a_ping()
    assert lane.outcome() == (name, "UNAUTHENTICATED")
    assert str(STATUS["UNAUTHENTICATED"]).encode() in b"".join(frame[3] for frame in seen if frame[0] == Kind.HEADERS)
    assert not [frame for frame in seen if frame[0] == Kind.WINDOW_UPDATE and frame[2] == 1]
    assert not lane.slice.begun.acquire(blocking=False)


def test_calls_beyond_the_limit_of_a_connection_are_refused(start: Start) -> None:
    lane = start(threads=2 * connection.STREAMS)
    peer = Peer(lane.port)
    numbers = range(1, 2 * connection.STREAMS + 2, 2)
    peer.send(*[peer.headers(number) for number in numbers])
    assert peer.reset(numbers[-1]) == Code.REFUSED_STREAM
    peer.send(frames.reset(1, Code.CANCEL), peer.headers(numbers[-1] + 2), data(numbers[-1] + 2, FIRST, end=True))
    assert peer.trailers(numbers[-1] + 2)["grpc-status"] == str(STATUS["INVALID_ARGUMENT"])
    peer.close()
    lane.is_quiet()
    lane.serves()


def test_calls_beyond_the_servers_threads_are_refused_and_leave_nothing_behind(start: Start) -> None:
    lane = start(threads=1)
    peer = Peer(lane.port)
    peer.send(peer.headers(1))
    for number in range(3, 2 * connection.STREAMS, 2):
        peer.send(peer.headers(number, end=True))
        assert peer.reset(number) == Code.REFUSED_STREAM
    peer.send(frames.reset(1, Code.CANCEL))
    lane.outcome()
    # the outcome comes before the thread is free
    retried(lane.serves, SOON, Outage("the server", print), threading.Event())
    peer.close()


def half_a_part(peer: Peer, lane: Lane) -> None:
    """Returns when the reader waits for the other half."""
    peer.send(peer.headers(), data(1, FIRST))
    assert lane.slice.placed.acquire(timeout=SOON)
    peer.send(data(1, SECOND)[:10_000])
    assert lane.slice.placed.acquire(timeout=SOON)


@pytest.mark.parametrize("times", [1, 10])
def test_a_connection_that_dies_in_mid_part_folds_nothing_and_frees_the_buffer(lane: Lane, times: int) -> None:
    for _ in range(times):
        peer = Peer(lane.port)
        half_a_part(peer, lane)
        peer.close()
        assert lane.outcome()[1] in GONE
    lane.is_quiet()
    assert lane.slice.folded == []
    lane.serves()


def test_a_peer_that_resets_its_push_in_mid_stream_folds_nothing_and_frees_the_buffer(peer: Peer, lane: Lane) -> None:
    peer.send(peer.headers(), data(1, FIRST + SECOND), frames.reset(1, Code.CANCEL))
    assert lane.outcome()[1] in GONE
    assert lane.slice.folded == []


def test_a_peer_that_stops_writing_in_mid_part_is_cut_off(peer: Peer, lane: Lane) -> None:
    half_a_part(peer, lane)
    lane.passes(IDLE - 1)
    peer.send(SECOND[10_000 - frames.HEADER_BYTES : 12_000])
    lane.outcome(step=IDLE + 1)
    assert peer.goaway() == Code.ENHANCE_YOUR_CALM
    assert lane.slice.folded == []


def test_a_peer_that_stops_in_mid_frame_before_its_call_is_let_in_is_cut_off(peer: Peer, lane: Lane) -> None:
    peer.send(peer.headers(name="Resume"), data(1, FIRST)[:5000])
    assert lane.outcome(step=IDLE + 1)[0] == "Resume"


@pytest.mark.parametrize(
    ("name", "has_window"),
    [*((name, True) for name in ("PushPull", "Pull", "Resume", "ExchangeSparse")), ("Pull", False), ("Resume", False)],
)
def test_a_peer_that_calls_and_says_nothing_or_gives_no_window_for_its_reply_is_answered_by_a_status(
    peer: Peer, lane: Lane, name: str, has_window: bool
) -> None:
    if has_window:
        peer.send(peer.headers(name=name))
    else:
        peer.send(NO_WINDOW, peer.headers(name=name), data(1, pull(), end=True))
        peer.next(Kind.HEADERS)
    assert lane.outcome(step=IDLE + 1) == (name, "RESOURCE_EXHAUSTED")
    assert peer.trailers()["grpc-status"] == str(STATUS["RESOURCE_EXHAUSTED"])
    peer.answers_a_ping()


def test_a_peer_that_drips_its_push_is_cut_off_in_the_end(peer: Peer, lane: Lane) -> None:
    peer.send(peer.headers(), data(1, FIRST))
    assert lane.slice.placed.acquire(timeout=SOON)
    for byte in SECOND[:2]:
        peer.send(data(1, bytes((byte,))))
        peer.answers_a_ping()
        lane.passes(IDLE / 2 + 1)
    assert lane.outcome() == ("PushPull", "RESOURCE_EXHAUSTED")
    assert peer.trailers()["grpc-status"] == str(STATUS["RESOURCE_EXHAUSTED"])


def test_a_peer_that_stops_reading_in_mid_reply_holds_no_thread(peer: Peer, lane: Lane) -> None:
    lane.slice.weights = VALUES.repeat(1400)  # 67 MB: more than any socket takes
    peer.send(WINDOW, frames.window_update(0, 1 << 30), peer.headers(name="Pull"), data(1, pull(), end=True))
    peer.next(Kind.DATA)
    assert lane.outcome(step=IDLE + 1)[0] == "Pull"
    came = 0
    for kind, flags, _, payload in peer.frames():  # to the trailers, or to the end of a connection that was stuck
        came += len(payload)
        if kind == Kind.HEADERS and flags & frames.END_STREAM:
            break
    assert came < lane.slice.weights.nbytes
    lane.slice.weights = VALUES


def test_a_peer_that_never_reads_its_answers_holds_no_other_one_up(peer: Peer, lane: Lane) -> None:
    lane.slice.weights = VALUES.repeat(1400)
    peer.send(WINDOW, frames.window_update(0, 1 << 30), peer.headers(name="Pull"), data(1, pull(), end=True))
    peer.next(Kind.DATA)
    # more than the 4 for each frame of the answer, which may go out meanwhile
    frames_of_answer = lane.slice.weights.nbytes // frames.DEFAULT_FRAME
    peer.send(frames.frame(Kind.PING, 0, 0, bytes(8)) * (FLOOD + 4 * frames_of_answer))
    assert lane.outcome()[1] in GONE
    lane.slice.weights = VALUES


@pytest.mark.parametrize("said", [b"", frames.PREFACE[:10], frames.PREFACE + frames.settings_frame({})[:5]])
def test_a_half_open_connection_is_given_up(start: Start, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.2)
    lane = start()
    peer = Peer(lane.port, said)
    assert [frame for frame in peer.frames() if frame[0] == Kind.PING]
    peer.close()
    lane.is_quiet()


def test_connections_beyond_the_limit_are_turned_away_and_told_why(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    peers = [Peer(lane.port) for _ in range(3)]
    for peer in peers:
        peer.answers_a_ping()
    late = Peer(lane.port)
    assert late.goaway() == Code.ENHANCE_YOUR_CALM
    for peer in [*peers, late]:
        peer.close()
    lane.is_quiet()
    lane.serves()


def test_connections_that_are_gone_at_once_take_no_place(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    for _ in range(50):
        Peer(lane.port, b"").vanish()
        lane.is_quiet()
    lane.serves()


def test_a_server_that_stops_does_not_wait_for_a_peer_that_does_not_read(lane: Lane) -> None:
    lane.slice.weights = VALUES.repeat(1400)
    peer = Peer(lane.port)
    peer.send(WINDOW, frames.window_update(0, 1 << 30), peer.headers(name="Pull"), data(1, pull(), end=True))
    peer.next(Kind.DATA)
    stopper = threading.Thread(target=lane.close)
    stopper.start()
    stopper.join(server.PATIENCE / 2)
    assert not stopper.is_alive()
    peer.close()


CLAIMS = {
    "a frame of header fields": frames.frame_header(connection.FRAME, Kind.HEADERS, frames.END_HEADERS, 1),
    "a frame of settings": frames.frame_header(connection.FRAME // 6 * 6, Kind.SETTINGS, 0, 0),
    "a frame of last words": frames.frame_header(connection.FRAME, Kind.GOAWAY, 0, 0),
    "a frame of an unknown kind": frames.frame_header(connection.FRAME, 99, 0, 0),
    "a frame of data on a stream that was never opened": frames.frame_header(connection.FRAME, Kind.DATA, 0, 1),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_because_a_frame_says_that_it_is_large(lane: Lane, claim: str) -> None:
    peers = [Peer(lane.port) for _ in range(5)]
    for peer in peers:
        peer.answers_a_ping()
    assert allocated(partial(all_claim, peers, [CLAIMS[claim]])) < connection.FRAME // 4
    lane.serves()


def test_nothing_is_allocated_because_a_message_says_that_it_is_large(lane: Lane) -> None:
    peer = Peer(lane.port)
    peer.answers_a_ping()
    message = b"\0" + MOST_BYTES.to_bytes(4, "big") + FIRST[5:6000]
    claim = [peer.headers(), data(1, message), frames.frame_header(connection.FRAME, Kind.DATA, 0, 1)]
    assert allocated(partial(all_claim, [peer], claim)) < MOST_BYTES // 8
    lane.serves()


def all_claim(peers: list[Peer], claim: list[bytes]) -> None:
    for peer in peers:
        peer.send(*claim)
        peer.ends_sending()
    for peer in peers:
        list(peer.frames())
        peer.close()


def allocated(work: Callable[[], None]) -> int:
    """The most that was allocated meanwhile (bytes)."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_thousand_idle_connections_cost_little_and_a_good_client_is_served_beside_them(lane: Lane) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    count, process = 1000, psutil.Process()
    before = process.memory_info().rss
    peers = [Peer(lane.port) for _ in range(count)]
    for peer in peers:
        peer.answers_a_ping()
    assert (process.memory_info().rss - before) / count < 256 << 10
    lane.serves()
    for peer in peers:
        peer.close()
    lane.is_quiet()
    lane.serves()

"""Attempts end for lack of progress, never because a push is large or a line is slow."""

import socket
import threading
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import TryAgain
from paceline.rpc import grpc_plane
from paceline.rpc.grpc_plane import Moving, frames
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.transport import encoded_parts
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import parse
from paceline.v1 import parameter_service_pb2 as pb


class Call:
    """A call over grpcio whose messages come when the test's clock says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.is_cancelled = False
        self.watchdog = Watchdog(lambda: self.now)
        monkeypatch.setattr(grpc_plane, "_watchdog", lambda: self.watchdog)
        self.moving = Moving(30.0)

    def cancel(self) -> None:
        self.is_cancelled = True

    def messages(self, count: int, seconds: float) -> Iterator[bytes]:
        for _ in range(count):
            self.now += seconds
            self.watchdog.look()
            if self.is_cancelled:
                raise grpc_plane.grpc.FutureCancelledError
            yield b""


def test_a_call_whose_messages_move_may_take_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(monkeypatch)
    with call.moving.watched(call):
        assert len(list(call.moving.came(call.messages(1000, 29.0)))) == 1000
        assert len(list(call.moving.out(call.messages(1000, 29.0)))) == 1000
    assert not call.is_cancelled


def test_a_call_in_which_nothing_moves_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(monkeypatch)
    with pytest.raises(TryAgain, match="no message has moved for 30 s"), call.moving.watched(call):
        list(call.moving.came(call.messages(3, 31.0)))


def test_a_message_that_is_sent_alone_may_take_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(monkeypatch)
    with call.moving.watched(call):
        for _ in call.moving.alone(b""):
            call.now += 1000.0
            call.watchdog.look()
    assert not call.is_cancelled


def test_the_answer_to_a_message_that_was_sent_alone_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(monkeypatch)
    with pytest.raises(TryAgain, match="no message has moved for 30 s"), call.moving.watched(call):
        list(chain(call.moving.alone(b""), call.messages(1, 31.0)))


@pytest.mark.parametrize("name", ["none", "bf16", "fp16", "int8"])
def test_a_part_is_sent_over_grpcio_in_small_messages_that_are_parts_themselves(name: str) -> None:
    codec, values = load_codec(name), np.linspace(-1, 1, 700_001).astype(np.float32)
    found, filled = np.empty_like(values), 0
    head = pb.PushHead(codec=name, elements=len(values))
    for number, raw in enumerate(frames(head, encoded_parts(values, codec, 4032 << 10))):
        message = parse(raw)
        assert bool(message.head) == (number == 0)
        assert message.offset == filled
        assert len(raw) < 300_000
        count = codec.elements_in(message.data)
        codec.decode(message.data, found[filled : filled + count])
        filled += count
    codec.round(values)
    assert filled == len(values)
    np.testing.assert_array_equal(found, values)


def test_a_codec_that_can_not_be_cut_sends_its_parts_whole() -> None:
    part = memoryview(b"x" * 1_000_000)
    assert list(load_codec("topk").pieces([(7, part)], 1000)) == [(7, part)]


def test_a_sender_waits_as_long_as_the_far_side_acknowledges_something() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sender = PlainSocket(socket.create_connection(listener.getsockname()), patience=0.2)
    reader, _ = listener.accept()
    with listener, reader:
        begun = sender.acknowledged
        ended = threading.Event()

        def read() -> None:
            while reader.recv(1 << 20):
                ended.wait(0.001)

        thread = threading.Thread(target=read)
        thread.start()
        sender.send([bytes(8 << 20)])
        sender.end_sending()
        thread.join()
        assert sender.acknowledged - begun >= 8 << 20
        sender.release()


def test_a_sender_whose_far_side_reads_nothing_gives_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = PlainSocket(socket.create_connection(listener.getsockname()), patience=0.2)
        reader, _ = listener.accept()
        with reader, pytest.raises(TimeoutError, match="does not read"):
            sender.send([bytes(64 << 20)])
        sender.release()

"""An HTTP/2 connection (RFC 9113), as far as gRPC needs one: frames in and out, settings, windows, streams, pings. Its own
thread reads; the caller's thread sends. What a peer may cost is bounded, each bound next to what it is for."""

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from paceline.core.errors import TryAgain
from paceline.rpc.lane import frames, headers
from paceline.rpc.lane.flow_control import Flow
from paceline.rpc.lane.frames import Code, Kind, Setting, Violation
from paceline.rpc.lane.headers import RESET, Calm
from paceline.rpc.lane.sockets import Buffer, PlainSocket, Reader
from paceline.rpc.lane.stream import UNOPENED, Fields, Stream, stream_reset
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.lane.writer import Writer, cut
from paceline.rpc.transport import Sink
from paceline.rpc.watchdog import PROGRESS

FRAME = 4 << 20
"""Largest frame taken (bytes): a part of the largest size in one."""
STREAMS = 128
"""Calls at once."""
_WINDOW = 1 << 30
"""Bytes of all streams that may be under way: their own windows are what bounds them."""
_LOOK = 3.0
"""Silence after which a client sends a ping (seconds): who waits for a server wants to know soon that it is gone."""
_CONTROL = headers.MOST
"""Bytes of a frame that is read as a whole before it is looked at: everything but DATA."""
_SETTINGS = {
    Setting.ENABLE_PUSH: 0,
    Setting.MAX_CONCURRENT_STREAMS: STREAMS,
    Setting.INITIAL_WINDOW_SIZE: UNOPENED,
    Setting.MAX_FRAME_SIZE: FRAME,
    Setting.MAX_HEADER_LIST_SIZE: headers.MOST,
}


class Connection:
    """One end of it. Streams are opened by the client; each call is sent by one thread."""

    def __init__(
        self,
        sock: PlainSocket,
        on_call: Callable[[Stream], None] | None = None,
        on_end: Callable[["Connection"], None] = lambda connection: None,
        traffic: Traffic | None = None,
    ) -> None:
        """`on_call`: for a server, what is done (at once) with a stream that a client has opened."""
        self._sock = sock
        self._reader = Reader(sock)
        self._writer = Writer(sock)
        self._on_call = on_call
        self._on_end = on_end
        self._traffic = traffic or Traffic()
        self.is_client = on_call is None
        self._streams: dict[int, Stream] = {}
        self._last = 0
        """Newest stream that the client has opened."""
        self._given_up: deque[int] = deque(maxlen=64)
        """Streams that we have reset: what still comes on them is dropped."""
        self._flow = Flow()
        self._credit = _WINDOW
        self._consumed = 0
        self._encoder = headers.Encoder()
        self._decoder = headers.Decoder()
        self._calm = Calm()
        self._pinged = 0.0
        """When a ping was sent that nothing has come since; 0: none was."""
        self._taken = 0
        """Bytes that the far side had acknowledged when it was silent last."""
        self.greeted = threading.Event()
        """The far side's first frame has come."""
        self.is_draining = False
        self.why: Exception | None = None
        """Why it has ended; None while it is open."""
        self._thread = self._new_thread(lambda: self._read(is_first=True))
        """Reads."""

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way; one that rests is not."""
        return all(stream.is_resting for stream in list(self._streams.values()))

    def start(self) -> None:
        """Says hello, and begins to read."""
        self._sock.on_silence = self._ping
        if self.is_client:
            self._sock.wake_each(_LOOK)
        hello = frames.settings_frame(_SETTINGS) + frames.window_update(0, _WINDOW - frames.DEFAULT_WINDOW)
        self._writer.send([(frames.PREFACE if self.is_client else b"") + hello])
        self._thread.start()

    # calls
    def open(self, fields: Fields, opener: Callable[[bytes], Sink] | None) -> Stream:
        """A client's new call. TryAgain where it can't be had now."""
        with self._writer.turn:  # streams must begin in the order of their numbers
            with self._flow.changed:
                self._check_there()
                if self.is_draining or len(self._streams) >= self._flow.streams:
                    raise TryAgain("The server takes no more calls on this connection at the moment.")
                self._last += 2 if self._last else 1
                stream = Stream(self._last, self._flow.window, opener, self._traffic.call())
                self._streams[self._last] = stream
            self._writer.write(self._encoder.frames(stream.number, fields.items(), False, self._flow.frame))
        return stream

    def _check_there(self) -> None:
        if self.why is not None:
            raise self.why

    def headers(self, stream: Stream, fields: Iterable[tuple[str, str]], end: bool = False) -> None:
        """Sends header fields, or with `end` the trailers."""
        with self._writer.turn:
            stream.has_sent_all = stream.has_sent_all or end
            self._writer.write(self._encoder.frames(stream.number, fields, end, self._flow.frame))

    def send(self, stream: Stream, pieces: Sequence[Buffer], end: bool = False) -> None:
        """Sends data as the windows allow; waits for room. A client that has its answer already sends no more. TryAgain and
        what ended the stream otherwise."""
        views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        left = sum(len(view) for view in views)
        while (some := self._flow.take(stream, left, self._is_wanted)) is not None:
            left -= some
            ends = end and not left
            stream.has_sent_all = stream.has_sent_all or ends
            header = frames.frame_header(some, Kind.DATA, frames.END_STREAM if ends else 0, stream.number)
            self._writer.send([header, *(cut(views, some) if left else views)])
            self._calm.earn()
            if not left:
                stream.counts.sent_parts += any(pieces[1:])
                return

    def _is_wanted(self, stream: Stream) -> bool:
        """Whether data still goes out on it."""
        if self.is_client and stream.done.is_set():
            return False
        self._check_there()
        if stream.is_reset or (stream.failure is not None and not self.is_client):
            raise stream.failure or TryAgain("The call has ended.")
        return True

    def grant(self, stream: Stream, more: int) -> None:
        """Lets the far side send this many bytes more."""
        if more:
            self._writer.send([frames.window_update(stream.number, more)])

    def finish(self, stream: Stream, code: Code = Code.NO_ERROR) -> None:
        """Forgets a call; where one side has not sent all, it is reset."""
        stream.counts.end()
        with self._flow.changed:
            if self._streams.pop(stream.number, None) is None:
                return
            if not stream.has_got_all:
                self._given_up.append(stream.number)
        if not (stream.has_got_all and stream.has_sent_all and not stream.is_reset) and self.why is None:
            self._traffic.reset("sent", code)
            self._writer.send([frames.reset(stream.number, code)])

    def drain(self) -> None:
        """No new calls; those that are under way go on."""
        self.is_draining = True
        self._writer.last_words(frames.goaway(self._last, Code.NO_ERROR, "shutting down"))

    def close(self, why: Violation | None = None) -> None:
        """At once; the reader ends every call that is under way."""
        if why is not None:
            self._traffic.cut_off("sent", why.code)
            self._writer.last_words(frames.goaway(self._last, why.code, str(why)))
        self._sock.close()

    def end_sending(self) -> None:
        """Nothing more goes out; the far side reads what did, and closes."""
        self._sock.end_sending()

    @property
    def is_stuck(self) -> bool:
        """Whether the peer does not read."""
        return self._writer.is_stuck()

    @property
    def silence(self) -> float:
        """For how long nothing has come while calls wait for it, not even the answer to our ping; 0 where it came, and where no
        ping was sent (seconds)."""
        since = self._pinged
        return _LOOK + time.monotonic() - since if since and not self.is_idle and self.why is None else 0.0

    @property
    def acknowledged(self) -> int:
        """Bytes that the far side's kernel has taken so far."""
        return self._sock.acknowledged

    @property
    def certificate(self) -> str | None:
        """The name in the far side's certificate, '' where it has none; None without TLS."""
        return self._sock.certificate

    # reading
    @property
    def is_read_here(self) -> bool:
        """Whether the calling thread is the one that reads."""
        return self._thread is threading.current_thread()

    def read_elsewhere(self) -> None:
        """Of the thread that reads, as the last thing it does for a frame: another one reads on. RuntimeError where the
        system has no more."""
        this = self._thread
        self._thread = self._new_thread(self._read)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = this
            raise

    def _new_thread(self, work: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=work, name="lane", daemon=True)

    def _read(self, is_first: bool = False) -> None:
        """Until the connection ends, or another thread reads."""
        is_told = False
        try:
            if is_first:
                self._traffic.connected()
                if not self.is_client and self._reader.exact(len(frames.PREFACE)) != frames.PREFACE:
                    raise Violation(Code.PROTOCOL_ERROR, "This is not HTTP/2 with prior knowledge.")
                self._frame(is_first)
                self.greeted.set()
            while self.is_read_here:
                self._frame()
            return
        except Violation as error:
            why = TryAgain(f"{error.code.name}: {error}")
            self._traffic.cut_off("sent", error.code)
            self._writer.last_words(frames.goaway(self._last, error.code, str(error)))
            is_told = True
        except OSError as error:
            why = TryAgain(f"The connection was lost: {error}")
        except Exception as error:
            why = TryAgain(f"A bug in the lane: {type(error).__name__}: {error}")
            traceback.print_exc()
        self._end(why, is_told)

    def _end(self, why: Exception, is_told: bool) -> None:
        """Fails what is under way. `is_told`: the far side may still read why."""
        with self._flow.changed:
            self.why = why
            lost = list(self._streams.values())
            self._streams = {}
            self._flow.changed.notify_all()
        for stream in lost:
            # a whole answer stays one: a server that drains ends the connection behind it
            if not (self.is_client and stream.has_got_all):
                stream.fail(why)
        if is_told:
            self._sock.linger()
        self._sock.close()
        with self._writer.turn:
            self._sock.release()
        self._traffic.connected(-1)
        self._on_end(self)

    def _frame(self, is_first: bool = False) -> None:
        while self._writer.has_left:
            self._writer.flush()
            if not self._writer.has_left or self._sock.wait_for_either():
                break
        length, kind, flags, number = frames.parse_header(self._reader.exact(frames.HEADER_BYTES))
        self._pinged = 0.0
        frames.check_shape(length, kind, flags, number, FRAME)
        if is_first and (kind != Kind.SETTINGS or flags & frames.ACK):
            raise Violation(Code.PROTOCOL_ERROR, "The first frame must be SETTINGS.")
        try:
            if kind == Kind.DATA:
                self._data(length, flags, number)
                return
            self._calm.spend()
            if kind > Kind.CONTINUATION:
                self._reader.skip(length)
                return
            if length > _CONTROL:
                text = f"A {Kind(kind).name} frame of {length:,} bytes; at most {_CONTROL:,} are taken."
                raise Violation(Code.ENHANCE_YOUR_CALM, text)
            if kind == Kind.HEADERS:
                self._headers(headers.read_block(self._reader, length, flags, number, self._calm), flags, number)
                return
            payload = self._reader.exact(length)
            if kind == Kind.SETTINGS and not flags & frames.ACK:
                table = self._flow.settings(frames.parse_settings(payload), self._streams.values(), FRAME)
                if table is not None:
                    self._encoder.resize(table)
                self._writer.answer(frames.frame(Kind.SETTINGS, frames.ACK, 0))
            elif kind == Kind.PING and not flags & frames.ACK:
                self._writer.answer(frames.frame(Kind.PING, frames.ACK, 0, payload))
            elif kind == Kind.WINDOW_UPDATE:
                more = int.from_bytes(payload, "big") & frames.MOST_WINDOW
                self._flow.grow(number, self._known(number) if number else None, more)
            elif kind == Kind.RST_STREAM:
                self._reset(number, int.from_bytes(payload, "big"))
            elif kind == Kind.GOAWAY:
                self._traffic.cut_off("received", int.from_bytes(payload[4:8], "big"))
                self._goaway(int.from_bytes(payload[:4], "big") & frames.MOST_WINDOW)
            elif kind == Kind.PRIORITY and int.from_bytes(payload[:4], "big") & frames.MOST_WINDOW == number:
                raise Violation(Code.PROTOCOL_ERROR, "A stream can't depend on itself.", number)
            elif kind in (Kind.PUSH_PROMISE, Kind.CONTINUATION):
                raise Violation(Code.PROTOCOL_ERROR, f"A {Kind(kind).name} frame out of place.")
        except Violation as error:
            if not error.stream:
                raise
            self._refuse(error)

    def _data(self, length: int, flags: int, number: int) -> None:
        stream, count = self._known(number), length
        padding = 0
        if flags & frames.PADDED:
            padding = self._reader.exact(1)[0]
            count -= 1 + padding
            if count < 0:
                raise Violation(Code.PROTOCOL_ERROR, "Padding longer than its frame.")
        self._credit -= length
        if self._credit < 0:
            raise Violation(Code.FLOW_CONTROL_ERROR, "More data than the connection's window.")
        if count:
            self._calm.earn()
        else:
            self._calm.spend()
        if stream is None:
            self._reader.skip(count + padding)
            if number not in self._given_up:
                raise Violation(Code.STREAM_CLOSED, "Data on a closed stream.")
        else:
            stream.credit -= length
            if stream.credit < 0 or stream.has_got_all:
                self._reader.skip(count + padding)
                if stream.has_got_all:
                    raise stream.after_end()
                raise Violation(Code.FLOW_CONTROL_ERROR, "More data than was asked for.", number)
            self._reader.on_some = stream.touch
            more = stream.feed(self._reader, count)
            self._reader.skip(padding)
            if stream.content_left is not None:
                stream.content_left -= count
            if flags & frames.END_STREAM:
                stream.got_all()
            elif more:
                self._writer.answer(frames.window_update(number, more))
        self._consumed += length
        if self._consumed > _WINDOW // 4:
            self._writer.answer(frames.window_update(0, self._consumed))
            self._credit += self._consumed
            self._consumed = 0
        if stream is not None:
            stream.wake()

    def _known(self, number: int) -> Stream | None:
        """The stream; None where it is over. It must have been opened."""
        if number > self._last or number % 2 == 0:
            raise Violation(Code.PROTOCOL_ERROR, f"Stream {number} has not been opened.")
        return self._streams.get(number)

    def _headers(self, block: bytes, flags: int, number: int) -> None:
        found = self._decoder.fields(block)
        ends = bool(flags & frames.END_STREAM)
        if not self.is_client and number > self._last:
            self._opened(number, found, ends)
            return
        stream = self._known(number)
        if stream is None:
            if number not in self._given_up:
                raise Violation(Code.STREAM_CLOSED, "Header fields on a closed stream.")
            return
        if stream.has_got_all:
            raise stream.after_end()
        if not self.is_client and not ends:
            raise Violation(Code.PROTOCOL_ERROR, "Trailers that do not end their stream.", number)
        headers.check_fields(found, number, is_request=False, is_trailers=not self.is_client or bool(stream.fields))
        if stream.fields:
            stream.trailers = dict(found)
        else:
            stream.fields = dict(found)
        if ends:
            stream.trailers = stream.trailers or stream.fields
            stream.got_all()
            self._flow.tell()  # a thread that sends on it need not go on
            stream.wake()

    def _opened(self, number: int, found: list[tuple[str, str]], ends: bool) -> None:
        if number % 2 == 0:
            raise Violation(Code.PROTOCOL_ERROR, f"A client's stream has an odd number, not {number}.")
        self._last = number
        if self.is_draining or len(self._streams) >= STREAMS:
            raise Violation(Code.REFUSED_STREAM, f"At most {STREAMS} calls at once.", number)
        headers.check_fields(found, number, is_request=True)
        with self._flow.changed:
            stream = self._streams[number] = Stream(number, self._flow.window, counts=self._traffic.call())
        stream.begins(dict(found))
        if ends:
            stream.got_all()
        assert self._on_call is not None
        self._on_call(stream)

    def _reset(self, number: int, code: int) -> None:
        self._calm.spend(RESET - 1)
        stream = self._known(number)
        self._traffic.reset("received", code)
        if stream is not None:
            with self._flow.changed:
                self._streams.pop(number, None)
                if not (stream.has_got_all and stream.trailers is not None and code == Code.NO_ERROR):
                    stream.fail(stream_reset(code))  # otherwise a server that has answered needs no more of the push
                self._flow.changed.notify_all()

    def _goaway(self, last: int) -> None:
        self.is_draining = True
        with self._flow.changed:
            late = [number for number in self._streams if self.is_client and number > last]
            unserved = [self._streams.pop(number) for number in late]
        for stream in unserved:
            stream.fail(TryAgain("The server is shutting down."))

    def _refuse(self, error: Violation) -> None:
        """Ends one stream."""
        stream = self._streams.pop(error.stream, None)
        self._given_up.append(error.stream)
        if stream is not None:
            stream.fail(TryAgain(f"{error.code.name}: {error}"))
        self._calm.spend(RESET)
        self._traffic.reset("sent", error.code)
        self._writer.answer(frames.reset(error.stream, error.code))

    def _ping(self) -> None:
        """The far side has been silent. TimeoutError where a ping has had no answer for too long, and no data was taken
        meanwhile: on a slow line the ping comes behind these."""
        now = time.monotonic()
        before, self._taken = self._taken, self._sock.acknowledged
        if self._taken - before >= PROGRESS:
            self._pinged = now if self._pinged else 0.0
            return
        if not self._pinged:
            self._pinged = now
            self._writer.answer(frames.frame(Kind.PING, 0, 0, b"paceline"))
        elif now - self._pinged > 0.9 * self._sock.patience:  # the kernel's timer is not as exact
            raise TimeoutError("the far side does not answer pings")

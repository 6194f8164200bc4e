"""One call on a connection: what has come of it, and how much either side may still send."""

import math
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from paceline.core.errors import BadPush, TryAgain
from paceline.rpc.bounds import MOST_BYTES
from paceline.rpc.lane.frames import Code, Violation
from paceline.rpc.lane.messages import PREFIX, Held, Messages, Source
from paceline.rpc.lane.traffic import Counts
from paceline.rpc.transport import Sink
from paceline.rpc.watchdog import PROGRESS
from paceline.rpc.wire import head_anywhere, head_of

Fields = dict[str, str]
UNOPENED = 64 << 10
"""Bytes that may come before it is known where they go."""
_FIELDS = 32
"""Bytes of a message's fields before its head ends, the head excepted."""
OPENED = 16 << 20
"""Bytes that may be under way to a place that is known."""


class Stream:
    """The connection's reader feeds it; one other thread sends on it and waits for it."""

    def __init__(
        self, number: int, room: int, opener: Callable[[bytes], Sink] | None = None, counts: Counts | None = None
    ) -> None:
        """`room`: bytes that may be sent. `opener`: chooses the sink by the first message's head, in the reader's thread;
        without it the thread that waits for `first` calls `attach`."""
        self.number = number
        self.room = room
        self._opener = opener
        self.counts = counts or Counts()
        self.credit = UNOPENED
        """Bytes that the far side may still send."""
        self.fields: Fields = {}
        self.trailers: Fields | None = None
        self.failure: Exception | None = None
        self.is_reset = False
        """Whether either side has ended it early."""
        self.has_ended = False
        """Whether nothing more is taken: the far side has sent all, or something is wrong."""
        self.has_got_all = False
        """Whether the far side has sent all."""
        self.content_left: int | None = None
        """Bytes that are still to come by the far side's content-length; None without one."""
        self.has_sent_all = False
        self.deadline = math.inf
        """Until when the caller waits (time.monotonic seconds)."""
        self.first = threading.Event()
        self.done = threading.Event()
        """The first message's head has come; all has come, or nothing more comes (`failure`)."""
        self.clock = time.monotonic
        self.touched = time.monotonic()
        """When bytes came last that were progress, by the clock."""
        self._fresh = 0
        """Bytes that have come since."""
        self.head = b""
        self._most_head = MOST_BYTES
        """Bytes that its head may have; until `expect_head` says it the first window is all that comes."""
        self._lock = threading.Lock()
        """Held while bytes go to their place."""
        self._held = bytearray()
        self._messages: Messages | None = None
        self._came: SimpleQueue[None] = SimpleQueue()
        """Wakes the threads that wait for a message: one is whole, or none comes any more."""
        self._on_more: Callable[[], None] | None = None
        self.on_wait: Callable[[], None] | None = None
        """Called before its sender waits for room."""

    # of the reader
    def begins(self, fields: Fields) -> None:
        """A client's call, with these header fields."""
        self.fields = fields
        if (content := fields.get("content-length", "")).isdecimal():
            self.content_left = int(content[:19])

    def feed(self, source: Source, count: int) -> int:
        """Takes `count` bytes; returns how many more the far side may send now."""
        with self._lock:
            self._fresh += count
            if self._fresh >= PROGRESS:
                self.touch()
                self._fresh = 0
            self.counts.received_bytes += count
            if self.failure is not None:
                source.skip(count)
                return 0
            if self._messages is None:
                self._held += source.exact(count)
                self._look_for_head()
            else:
                self._pour(source, count)
            return self._more()

    def touch(self) -> None:
        """The far side has made progress."""
        self.touched = self.clock()

    def got_all(self) -> None:
        """The far side has sent all. A Violation where that is not as much as it said."""
        self.has_got_all = True
        if self.content_left:
            raise Violation(Code.PROTOCOL_ERROR, "The data is not as long as content-length says.", self.number)
        with self._lock:
            self._end(None)

    def wake(self) -> None:
        """Ends a rest where something has come."""
        if self._on_more is not None and self._has_more:
            on_more = self._on_more
            self._on_more = None
            on_more()

    def after_end(self) -> Violation:
        """What it is to send more (section 5.1): on a stream that both sides have ended, the connection is at fault."""
        number = 0 if self.has_sent_all else self.number
        return Violation(Code.STREAM_CLOSED, f"More on stream {self.number} after its end.", number)

    def _end(self, failure: Exception | None) -> None:
        if failure is None and self._messages is not None and not self._messages.is_between:
            failure = BadPush("The stream ended in the middle of a message. Send it whole.")
        self.has_ended = True
        self.failure = self.failure or failure
        self.first.set()
        self.done.set()
        self._came.put(None)

    def _look_for_head(self) -> None:
        if self.first.is_set() or len(self._held) < PREFIX:
            return
        try:
            length = int.from_bytes(self._held[1:PREFIX], "big")
            message = bytes(self._held[PREFIX : PREFIX + length])
            head = head_of(message, self._most_head) if message or length else b""
            if head is None or (not head and len(message) < min(length, UNOPENED - PREFIX)):
                return  # it may come yet
            self.head = head or head_anywhere(message)
            if self._opener is not None:
                self._attach(self._opener(self.head))
        except Exception as error:  # what the opener raises goes to the thread that waits
            self._end(error)
        self.first.set()

    def _pour(self, source: Source, count: int) -> None:
        assert self._messages is not None
        try:
            self._messages.feed(source, count)
        except OSError:
            raise
        except Exception as error:  # the sink's: the rest of the bytes has nowhere to go
            self._end(error)
            source.skip(self._messages.unread)

    def _more(self) -> int:
        """What of the bytes taken may be replaced."""
        if self._messages is None or self.has_ended or self.credit > OPENED // 2:
            return 0
        more = OPENED - self.credit
        self.credit = OPENED
        return more

    # of the sender
    def spend(self, count: int) -> None:
        """This many bytes go out."""
        self.room -= count
        self.counts.sent_bytes += count

    def wait(self, room: threading.Condition) -> None:
        """With `room` held: waits for it, at most a second. TryAgain at the deadline."""
        if self.on_wait is not None:
            self.on_wait()
        patience = self.deadline - time.monotonic()
        if patience <= 0:
            raise TryAgain("DEADLINE_EXCEEDED: the far side took no more data in time.")
        self.counts.wait(room, min(1.0, patience))

    # of the thread that waits
    def expect_head(self, most: int) -> int:
        """The call is let in, and its first message's head may have `most` bytes; returns how many more bytes the far side may
        send, where that is more than the first window."""
        with self._lock:
            self._most_head = most
            if self._messages is None:
                self._look_for_head()
            more = PREFIX + _FIELDS + most - UNOPENED
            if self.first.is_set() or self.has_ended or more <= 0:
                return 0
            self.credit += more
            return more

    def attach(self, sink: Sink | None) -> int:
        """Everything from the first byte on goes to the sink (None: into `messages`); returns how many more bytes the far
        side may send."""
        with self._lock:
            if self.failure is None:
                self._attach(sink)
            return self._more()

    def _attach(self, sink: Sink | None) -> None:
        came = self._came  # not self: what is in a ring of references keeps its memory until it is looked for
        self._messages = Messages(sink, self.counts, lambda: came.put(None))
        held = self._held
        self._held = bytearray()
        try:
            self._messages.feed(Held(held), len(held))
        except Exception as error:
            self._end(error)
        if self.has_ended:
            self._end(None)

    def message(self, patience: float | None = None) -> bytes | None:
        """The next message, where no sink takes them (after `attach`); None where no more comes. queue.Empty where it does
        not come in this many seconds."""
        while self._messages is not None and not self.is_over:
            self._came.get(timeout=patience)
            if self._messages.whole:
                return self._messages.whole.pop()
        return None

    @property
    def is_over(self) -> bool:
        """Whether there is no message, and none comes any more."""
        return (self.has_ended or self.is_reset) and not (self._messages is not None and self._messages.whole)

    def rest(self, on_more: Callable[[], None]) -> bool:
        """Between two messages nobody waits: the reader calls `on_more`, once, when something comes. False where something has
        come already."""
        if not self._lock.acquire(blocking=False):  # the reader is in the middle of a frame
            return False
        rests = not self._has_more
        if rests:
            self._on_more = on_more
        self._lock.release()
        return rests

    @property
    def is_ready(self) -> bool:
        """Whether `message` has not to wait."""
        return self.has_ended or self.is_reset or (self._messages is not None and bool(self._messages.whole))

    @property
    def _has_more(self) -> bool:
        return self.is_ready or self._messages is None or not self._messages.is_between

    @property
    def is_resting(self) -> bool:
        return self._on_more is not None

    def detach(self, why: Exception | None = None, patience: float = 0.5) -> bool:
        """Nothing is put in the sink's places any more; False where the reader is in the middle of one."""
        if not self._lock.acquire(timeout=patience):
            return False
        self._end(why or TryAgain("The call was given up."))
        self._lock.release()
        return True

    def take_back(self, close: Callable[[], None]) -> None:
        """No byte is put in the sink's places after this; `close` ends the connection, where the reader is in one of them."""
        if not self.has_ended and not self.detach():
            close()
            self.detach(patience=60.0)

    def fail(self, failure: Exception) -> None:
        """Something else ended it; wakes the waiting threads, also while the reader is busy."""
        self.failure = self.failure or failure
        self.is_reset = True
        self.counts.end()
        self.first.set()
        self.done.set()
        self._came.put(None)


def stream_reset(code: int) -> TryAgain:
    """The far side ended the call without an answer."""
    name = Code(code).name if code in list(Code) else f"code {code}"
    return TryAgain(f"The far side reset the call: {name}.")

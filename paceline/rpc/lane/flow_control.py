"""How much may be sent on a connection, and on each of its streams (RFC 9113, sections 5.2, 6.5.2 and 6.9)."""

import threading
from collections.abc import Callable, Iterable

from paceline.rpc.lane import frames
from paceline.rpc.lane.frames import Code, Setting, Violation
from paceline.rpc.lane.stream import Stream


class Flow:
    """What the far side lets us send. `changed` guards it and the connection's streams."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._room = frames.DEFAULT_WINDOW
        """Bytes of all streams together."""
        self.window = frames.DEFAULT_WINDOW
        """What a new stream begins with (bytes)."""
        self.frame = frames.DEFAULT_FRAME
        self.streams = frames.MOST_WINDOW
        """Bytes of a frame; streams at once."""

    def take(self, stream: Stream, wanted: int, is_wanted: Callable[[Stream], bool]) -> int | None:
        """Bytes of one frame of at most `wanted`; waits until there is room for some, or none is wanted. None, and what it
        raises, where `is_wanted`, asked whenever something changed, says that no more goes out."""
        with self.changed:
            while is_wanted(stream):
                some = min(wanted, self._room, stream.room, self.frame)
                if some > 0 or not wanted:
                    self._room -= some
                    stream.spend(some)
                    return some
                stream.wait(self.changed)
        return None

    def tell(self) -> None:
        """Wakes the waiting threads after a change."""
        with self.changed:
            self.changed.notify_all()

    def grow(self, number: int, stream: Stream | None, more: int) -> None:
        """WINDOW_UPDATE: of a stream (None: it is over), or by number 0 of the connection."""
        if not more:
            raise Violation(Code.PROTOCOL_ERROR, "A window grows by at least 1.", number)
        with self.changed:
            if not number:
                self._room += more
            elif stream is not None:
                stream.room += more
            self.changed.notify_all()
        if (stream.room if stream is not None else self._room) > frames.MOST_WINDOW:
            raise _too_large(number)

    def settings(self, settings: Iterable[tuple[int, int]], streams: Iterable[Stream], frame: int) -> int | None:
        """SETTINGS, with the streams that are open; frames are of at most `frame` bytes. Returns the size of the table of
        header fields, if that is among them."""
        table = None
        with self.changed:
            for key, value in settings:
                if key == Setting.INITIAL_WINDOW_SIZE:
                    change = value - self.window
                    self.window = value
                    for stream in streams:
                        stream.room += change
                        if stream.room > frames.MOST_WINDOW:
                            raise _too_large(0)
                elif key == Setting.MAX_FRAME_SIZE:
                    self.frame = min(value, frame)
                elif key == Setting.MAX_CONCURRENT_STREAMS:
                    self.streams = value
                elif key == Setting.HEADER_TABLE_SIZE:
                    table = value
            self.changed.notify_all()
        return table


def _too_large(number: int) -> Violation:
    return Violation(Code.FLOW_CONTROL_ERROR, "A window of more than 2^31 - 1 bytes.", number)

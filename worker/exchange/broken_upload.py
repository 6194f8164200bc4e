"""A worker's pushes over a line that breaks: what has arrived at the server is not sent again."""

import time
from bisect import bisect_right
from random import SystemRandom

from paceline.rpc.transport import PIECE, Parts, in_pieces
from paceline.v1 import parameter_service_pb2 as pb

_RANDOM = SystemRandom()
"""Neither shared by forked processes nor drawn from by scripts."""


def draw_upload(size: int) -> int:
    """Returns the number that all attempts to send these bytes share; 0 for so few that each attempt sends all."""
    return _RANDOM.getrandbits(63) if size > PIECE else 0


class BrokenUpload:
    """The push to one server whose last attempt has failed, and how much of it has come."""

    def __init__(self) -> None:
        self.upload = 0
        """Its number; 0: there is none."""
        self._arrived = 0
        """Elements, as the server said last."""
        self.grew = 0.0
        """When it said last that more has come (time.monotonic seconds)."""

    def note(self, upload: int, arrived: int) -> None:
        """Notes what the server says of that upload."""
        if upload == self.upload:
            self.grew = time.monotonic() if arrived > self._arrived else self.grew
            self._arrived = arrived

    def rest(self, head: pb.PushHead, parts: Parts) -> Parts:
        """Returns what the server lacks of a push, which may be read more than once, and sets `head.start`. After a failure it
        is in pieces, since the line may break again before a whole part has come."""
        is_again = head.upload != 0 and head.upload == self.upload
        self.upload = head.upload
        head.start = 0
        if not is_again:
            self._arrived = 0
            return parts
        pieces = list(in_pieces(head.codec, parts))
        starts = [*(start for start, _ in pieces), head.elements]
        first = bisect_right(starts, self._arrived) - 1
        head.start = starts[first]
        return pieces[first:]

"""What has come of pushes whose connection broke: the next attempt to send one goes on from there."""

from collections.abc import Callable
from typing import NamedTuple

from paceline.core.errors import TryAgain
from paceline.core.values import Vector
from paceline.v1 import parameter_service_pb2 as pb


class _Unfinished(NamedTuple):
    head: pb.PushHead
    values: Vector
    filled: int
    """Elements that have come, from the first one on."""


class UnfinishedPushes:
    """One for each worker at most. Only an attempt whose head is the same, but for where it starts, goes on with one. Not
    thread-safe."""

    def __init__(self) -> None:
        self._pushes: dict[str, _Unfinished] = {}
        """By worker; the one that broke longest ago comes first."""

    def __len__(self) -> int:
        return len(self._pushes)

    def add(self, head: pb.PushHead, values: Vector, filled: int) -> None:
        """Adds what has come of a push; its worker has no other one here."""
        self._pushes[head.worker] = _Unfinished(head, values, filled)

    def arrived(self, worker: str, upload: int) -> int:
        """Returns how many elements of this upload have come."""
        push = self._pushes.get(worker)
        return push.filled if push is not None and push.head.upload == upload else 0

    def check(self, head: pb.PushHead) -> None:
        """Raises TryAgain for a push that starts behind what has come of it."""
        push = self._pushes.get(head.worker)
        if head.start and not (push is not None and head.start <= push.filled and _is_same(push.head, head)):
            raise TryAgain(
                f"{head.worker} goes on with a push at element {head.start:,}, but the server has not kept what came before. "
                "Say Resume, and send the push from where that says."
            )

    def pop(self, worker: str) -> Vector:
        """Takes out the worker's array, with what has come; without one that of the push that broke longest ago."""
        return self._pushes.pop(worker if worker in self._pushes else next(iter(self._pushes))).values

    def drop(self, is_over: Callable[[pb.PushHead], bool]) -> list[Vector]:
        """Forgets the pushes that nobody will go on with; returns their arrays."""
        over = [worker for worker, push in self._pushes.items() if is_over(push.head)]
        return [self._pushes.pop(worker).values for worker in over]


def _is_same(one: pb.PushHead, other: pb.PushHead) -> bool:
    """Whether they are heads of the same push, wherever the attempts start."""
    moved = pb.PushHead()
    moved.CopyFrom(other)
    moved.start = one.start
    return moved == one

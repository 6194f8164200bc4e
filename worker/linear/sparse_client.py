"""A client for all servers with sparse updates: each gets the part in its slice, and the answers are joined."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.core.linear.sparse import decode_places
from paceline.core.values import Base, Places, Sparse, Vector
from paceline.rpc.transport import decoded
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.link_with_retries import Link
from paceline.worker.exchange.parameter_client import ParameterClient


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What came back from one server: weights by their places in the whole model; None: the slice must be pulled."""

    head: pb.PullHead
    weights: Sparse | None


class SparseClient(ParameterClient):
    """As `ParameterClient`; slices are one range each."""

    def begin_sparse(
        self, clock: int, view: int, update: Sparse, examples: int, bases: Sequence[Base], wanted: Places | None = None
    ) -> Callable[[], list[Answer]]:
        """Pushes one clock's update (`examples` 0: an empty one), cut by slices; what is returned waits for the answers. They
        bring the weights that are wanted, or without such all that differ from `bases`, the weights it was computed on."""

        def exchange(link: Link) -> Answer:
            start, stop = bounds(link)
            own = within(update, start, stop)
            asked = None if wanted is None else _cut(wanted, start, stop) - start
            found = link.push_sparse(clock, view, own, examples, bases[link.index], asked)
            return Answer(found.head, self._weights(link, found, asked))

        return self._begin(exchange)

    def pull_slices(self, target: Vector, servers: Sequence[int] | None = None, version: int | None = None) -> None:
        """Receives some servers' slices (None: all) into the flat model."""

        def pull(link: Link) -> None:
            if servers is None or link.index in servers:
                link.pull(version, target)

        self._everywhere(pull)

    def _weights(self, link: Link, found: pb.PushPullSparseReply, wanted: Places | None) -> Sparse | None:
        if found.all:
            return None
        start, stop = bounds(link)
        who = f"server {link.index}"
        places = wanted if wanted is not None else decode_places(found.places, stop - start, who)
        values = decoded(found.values, self._pull_codec, len(places), who)
        return Sparse(places + start, values, self._total)


def bounds(link: Link) -> tuple[int, int]:
    """First element of the link's slice and the one after its last."""
    return (link.ranges[0].start, link.ranges[0].stop) if link.ranges else (0, 0)


def within(update: Sparse, start: int, stop: int) -> Sparse:
    """The part of an update that lies in a slice, by its places there."""
    first, last = np.searchsorted(update.places, (start, stop))
    return Sparse(update.places[first:last] - start, update.values[first:last], stop - start)


def _cut(places: Places, start: int, stop: int) -> Places:
    first, last = np.searchsorted(places, (start, stop))
    return places[first:last]

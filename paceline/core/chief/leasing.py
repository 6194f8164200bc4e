"""Lets the chief lease mini-batches (paceline/core/chief/leases.py), and free what workers that have left have not done."""

import math
from collections.abc import Mapping
from typing import Any

from paceline.core.chief.leases import Lease, Leases, Pace, Wish
from paceline.core.chief.membership import Membership
from paceline.core.chief.other_servers import OtherServers


class Leasing:
    """Leases mini-batches to members, and frees what those leave undone that are none any more. Not thread-safe."""

    def __init__(self, streams: int, membership: Membership, other_servers: OtherServers) -> None:
        self._leases = Leases(streams)
        self._membership = membership
        self._other_servers = other_servers
        self._left_in: dict[str, int] = {}
        """By worker that has left, the first view seen without it."""
        self._known: dict[str, list[int]] = {}
        """By such a worker, how far it is on each server, as last released."""

    @property
    def number(self) -> int:
        """Grows with every change."""
        return self._leases.number

    @property
    def untrained(self) -> int:
        """Mini-batches of the epochs that nobody has."""
        return self._leases.untrained

    def lease(self, wish: Wish, pace: Pace, marks: Mapping[str, int]) -> Lease:
        """Returns the lease that has the next clock of a worker that has a seat. `marks`: how far each worker is on the chief's
        slice."""
        seats, places = self._membership.view.seats, self._membership.places
        lived_in = {places[member].index for member in seats if member in places}
        own, pace = (
            wish._replace(place=places[wish.worker].index),
            pace._replace(is_exact=pace.is_exact or self._unknown > 0),
        )
        return self._leases.grant(own, lived_in, {member: marks.get(member, 0) for member in seats}, pace)

    def ends_at(self, row: int) -> None:
        """Every stream has had all of its epochs at this row."""
        self._leases.end = row

    def free(self, unseated: Mapping[str, int]) -> dict[str, int]:
        """Frees what workers that are no members have left undone, as soon as all servers have said how far these were. Returns
        how many mini-batches of each are free now that were not before. `unseated`: how far these are on the chief's slice."""
        view = self._membership.view
        gone = [worker for worker in self._leases.holders if worker not in view.seats]
        self._left_in = {worker: self._left_in.get(worker, view.number) for worker in gone}
        self._known = {worker: known for worker, known in self._known.items() if worker in self._left_in}
        freed = {}
        for worker, left_in in self._left_in.items():
            theirs = self._other_servers.marks(worker, left_in)
            if theirs is None:
                continue
            found = [unseated.get(worker, 0), *theirs]
            if found != self._known.get(worker):
                self._known[worker] = found
                freed[worker] = self._leases.release(worker, found)
        return {worker: rows for worker, rows in freed.items() if rows}

    def clocks_left(self, marks: Mapping[str, int], width: int) -> float:
        """How many clocks of `width` mini-batches it takes until all of the epochs are done, where members are level; infinite
        while some are nobody's, or may be."""
        if self._unknown:
            return math.inf
        members = {member: marks.get(member, 0) for member in self._membership.view.seats}
        places = {member: claim.index for member, claim in self._membership.places.items() if member in members}
        return self._leases.clocks_left(members, places, width) if self._leases.number else 0

    @property
    def lacks(self) -> int:
        """How many mini-batches the chief's slice has that another one may not have yet: of workers that have left."""
        return self._unknown + self._leases.lacking(self._membership.view.seats)

    @property
    def _unknown(self) -> int:
        """Workers that have left while not all servers have said yet how far they were."""
        seats = self._membership.view.seats
        return sum(1 for worker in self._leases.holders if worker not in seats and worker not in self._known)

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {"leases": self._leases.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`."""
        if state.get("leases"):
            self._leases.restore(state["leases"])

"""One server's slice of the model: weights, optimizer, clocks and policy; pushes go in, replies come out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from paceline.core.accumulator import Accumulator
from paceline.core.clocks import Clocks, Entry
from paceline.core.errors import BadPush, Fenced, Gap, NotYet, VersionGone
from paceline.core.optimizer import Optimizer
from paceline.core.policy import Gathered, Policy
from paceline.core.values import Dense, Outcome, Published, Push, Reply, Vector, Verdict, View
from paceline.core.versions import Versions


class Phase(StrEnum):
    """What a slice is ready for."""

    EMPTY = "empty"
    """No weights yet: pushes and pulls wait."""
    RECOVERING = "recovering"
    """Back from a snapshot: waits until every member has said where it stands."""
    SERVING = "serving"


@dataclass(frozen=True, slots=True, eq=False)
class SliceState:
    """What a snapshot holds, all at one version: arrays of the slice's length, and a table of plain JSON values."""

    weights: Vector
    slots: Sequence[Vector]
    table: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a worker stands on a slice, told to one that joins or comes back."""

    term: int
    clock: int
    version: int
    phase: Phase
    lost: tuple[int, int] | None
    """First and last clock of this worker that a restart of the server lost, where it lost any."""


class ModelSlice:
    """The heart: a push that must wait is a reply not yet sent. Every call returns the replies that may go out now.
    Not thread-safe: its driver serialises calls, and releases each reply's weights when they are sent."""

    def __init__(self, length: int, policy: Policy, optimizer: Optimizer, term: int = 1) -> None:
        self.length, self.policy, self.optimizer, self.term = length, policy, optimizer, term
        self.clocks = Clocks()
        self.phase = Phase.EMPTY
        self.durable: dict[str, int] = {}
        """Newest clock of each worker that a snapshot on disk covers."""
        self.held_from: int | None = None
        """No round at or above this one closes while it is set: a view is on its way to the other servers."""
        self._slots = optimizer.new_slots(length)
        self._gathering = Accumulator(length) if policy.rounds else None
        self._waiting: dict[str, tuple[int, float]] = {}
        """worker -> clock and time of the push whose reply is not sent yet."""
        self._resumed: set[str] = set()
        self._digest: bytes | None = None

    # weights
    def initialise(self, weights: Vector, digest: bytes) -> None:
        """Takes the first weights, once; the same ones again change nothing, others are refused."""
        if self.phase is not Phase.EMPTY:
            if self._digest not in (None, digest) and not self.clocks.pushes:
                raise BadPush("The slice has other first weights already: use the same seed and model on every worker.")
            return
        if len(weights) != self.length:
            raise BadPush(f"The first weights have {len(weights):,} values, the slice holds {self.length:,}.")
        self._versions = Versions(weights, 0, self.policy.rounds)
        self._digest, self.phase = digest, Phase.SERVING

    @property
    def version(self) -> int:
        return self.clocks.version

    @property
    def lr(self) -> float:
        """Learning rate of the next fold."""
        return self.optimizer.lr

    @property
    def crowded(self) -> bool:
        """Whether the driver should let a reader finish before the next push."""
        return self.phase is Phase.SERVING and self._versions.crowded

    def pull(self, version: int | None = None) -> Published | None:
        """The weights (of `version`, else the current ones), pinned; None while they are not there yet."""
        if self.phase is not Phase.SERVING or (version is not None and version > self.version):
            return None
        found = self._versions.pin(version)
        if found is None:
            raise VersionGone(f"Version {version} is no longer kept; the slice is at {self.version}.")
        return found

    def release(self, published: Published) -> None:
        """The reader of a reply or a pull has finished with its weights."""
        self._versions.release(published)

    def holds(self, worker: str) -> bool:
        """Whether the values that this worker pushed last are still needed."""
        return self._gathering is not None and self._gathering.holds(worker)

    def next_in_order(self) -> str | None:
        """The worker whose push a round's sum waits for; None without rounds."""
        if self._gathering is None:
            return None
        return self._gathering.next_in_order(self.clocks.in_order(), self._has_pushed)

    # membership
    def view(self, view: View) -> list[Reply]:
        """Who counts from now on; a departure may set others free."""
        if view.number <= self.clocks.view.number:
            return []
        holders = {worker: seat.incarnation for worker, seat in view.seats.items()}
        self._waiting = {
            worker: push
            for worker, push in self._waiting.items()
            if holders.get(worker) == self.clocks.entry(worker).incarnation
        }
        self.clocks.take_view(view)
        self._maybe_recovered()
        return self._settle()

    def hold_rounds(self, first: int | None) -> list[Reply]:
        """Keeps rounds from `first` on open until called with None: the chief's slice waits for the other servers. A second
        view on its way does not loosen the hold of the first."""
        self.held_from = first if first is None or self.held_from is None else min(first, self.held_from)
        return self._settle()

    def resume(self, worker: str, incarnation: int, clock: int) -> tuple[Standing, list[Reply]]:
        """A worker says which of its clocks this slice has answered (0: it doesn't know); the slice says where it stands."""
        entry = self.clocks.entry(worker)
        if incarnation < entry.incarnation:
            raise self._fenced(worker, incarnation)
        lost = (entry.clock + 1, clock) if clock > entry.clock and self.phase is not Phase.EMPTY else None
        entry.clock = max(entry.clock, clock)
        self._resumed.add(worker)
        self._maybe_recovered()
        return Standing(self.term, entry.clock, self.version, self.phase, lost), self._settle()

    # the hot path
    def push(self, push: Push) -> list[Reply]:
        """Counts a push once: no reply yet, its own, or everyone's. NotYet: repeat after the next view or recovery."""
        if push.view > self.clocks.view.number or self.phase is not Phase.SERVING:
            raise NotYet(
                f"The slice is {self.phase} at view {self.clocks.view.number}; the push needs view {push.view}."
            )
        self._check(push)
        if push.clock <= self.clocks.entry(push.worker).clock:
            return self.ask(push.worker, push.incarnation, push.clock, push.time)
        staleness = self.version - push.base.version if push.base.term == self.term else 0
        verdict = self._admit(push)
        self.clocks.advance(push, verdict, staleness, self.lr)
        self.policy.observe(push, self.clocks)
        if verdict.outcome is Outcome.BUFFERED and self._gathering is not None:
            self._gathering.add(push)
        elif verdict.outcome is Outcome.FOLDED and isinstance(push.update, Dense):
            self._fold(Gathered(push.update.values, 1.0, 1, push.examples))
        self._waiting[push.worker] = (push.clock, push.time)
        return self._settle()

    def ask(self, worker: str, incarnation: int, clock: int, time: float) -> list[Reply]:
        """The reply to a push that was counted before: the scalars of its worker's last push and today's weights, or still
        to come; Gap where it never came. A clock before the last one waits for nobody: its worker is catching up."""
        entry = self.clocks.entry(worker)
        if self.phase is not Phase.SERVING or (self.clocks.seat(worker) is None and incarnation > entry.incarnation):
            raise NotYet(f"The slice is {self.phase} at view {self.clocks.view.number}, which {worker} is not in yet.")
        self._check_seat(worker, incarnation)
        if clock > entry.clock:
            raise Gap(
                f"Clock {clock} of {worker} never came; the slice has its clock {entry.clock}. Send the push again."
            )
        if clock < entry.clock:
            return [self._reply(worker, clock, time)]
        self._waiting[worker] = (clock, self._waiting.get(worker, (clock, time))[1])
        return self._settle()

    # snapshots
    def state(self) -> SliceState:
        """A copy of everything that must come back together; a push whose round is open is not in it."""
        table = {worker: asdict(entry) for worker, entry in self.clocks.table.items()}
        open_round = self._gathering.contributors if self._gathering else {}
        for worker in open_round:
            table[worker]["clock"] -= 1
        facts = {
            "version": self.version, "pushes": self.clocks.pushes - len(open_round),
            "examples": self.clocks.examples - sum(open_round.values()),
            "clocks": table, "policy": self.policy.state(),
        }  # fmt: skip
        return SliceState(self._versions.current.values.copy(), [slot.copy() for slot in self._slots], facts)

    def restore(self, state: SliceState) -> None:
        """Starts from a snapshot, RECOVERING until each member has said where it stands."""
        facts = state.table
        self.clocks.version, self.clocks.pushes, self.clocks.examples = (
            facts["version"],
            facts["pushes"],
            facts["examples"],
        )
        for worker, entry in facts["clocks"].items():
            self.clocks.table[worker] = Entry(**(entry | {"outcome": Outcome(entry["outcome"])}))
        self.policy.restore(facts["policy"])
        self._slots = list(state.slots)
        self._versions = Versions(state.weights, self.version, self.policy.rounds)
        self.note_durable(state)
        self.phase, self.clocks.is_recovering = Phase.RECOVERING, True

    def note_durable(self, state: SliceState) -> None:
        """A snapshot of this state is safe on disk."""
        self.durable = {worker: entry["clock"] for worker, entry in state.table["clocks"].items()}

    # inside
    def _check(self, push: Push) -> None:
        self._check_seat(push.worker, push.incarnation)
        last, clock = self.clocks.view.seats[push.worker].last, self.clocks.entry(push.worker).clock
        if len(push.update) != self.length:
            raise BadPush(f"{push.worker} pushed {len(push.update):,} values to a slice of {self.length:,}.")
        if push.clock > clock + 1:
            raise Gap(f"{push.worker} pushed clock {push.clock}, expected {clock + 1}. Say Resume first.")
        if last is not None and push.clock > last:
            raise BadPush(f"{push.worker} pushed clock {push.clock}, but its last one is {last}: the run is stopping.")
        if push.base.term > self.term or (push.base.term == self.term and push.base.version > self.version):
            raise BadPush(
                f"{push.worker} claims weights of {tuple(push.base)}; the slice is at {(self.term, self.version)}."
            )

    def _check_seat(self, worker: str, incarnation: int) -> None:
        seat = self.clocks.seat(worker)
        if seat is None or incarnation < seat.incarnation:
            raise self._fenced(worker, incarnation)
        if incarnation > seat.incarnation:
            raise NotYet(f"Incarnation {incarnation} of {worker} is not in view {self.clocks.view.number} yet.")

    def _fenced(self, worker: str, incarnation: int) -> Fenced:
        seat = self.clocks.seat(worker)
        held = "it was expelled" if seat is None else f"incarnation {seat.incarnation} holds its seat"
        return Fenced(f"{worker} (incarnation {incarnation}) does not count any more: {held}. Join again.")

    def _admit(self, push: Push) -> Verdict:
        if push.base.term != self.term:
            return Verdict(Outcome.DROPPED, "stale_term")
        return self.policy.admit(push, self.clocks)

    def _settle(self) -> list[Reply]:
        """Folds what is due and lets go whoever may."""
        if self.phase is not Phase.SERVING:
            return []
        if self._gathering is not None:
            self._gathering.advance(self.clocks.in_order(), self._has_pushed)
            while self.clocks.view.seats and self.policy.is_due(self.clocks) and not self._is_held():
                self._close(self._gathering)
        free = [worker for worker in self._waiting if self.policy.may_proceed(worker, self.clocks)]
        return [self._reply(worker, *self._waiting.pop(worker)) for worker in free]

    def _is_held(self) -> bool:
        return self.held_from is not None and self.version + 1 >= self.held_from

    def _has_pushed(self, worker: str) -> bool:
        """Whether the open round waits for nothing more from the member."""
        return self.clocks.progress(worker) > self.version or self.clocks.is_done(worker)

    def _close(self, gathering: Accumulator) -> None:
        """Ends a round; one without any example keeps the weights as they are."""
        gathered = gathering.close()
        if gathered is not None:
            self._fold(gathered)
            return
        target = self._versions.target()
        np.copyto(target, self._versions.current.values)
        self._publish(target)

    def _fold(self, gathered: Gathered) -> None:
        target = self._versions.target()
        self.policy.fold(self._versions.current.values, target, gathered, self.optimizer, self.lr, self._slots)
        self._publish(target)

    def _publish(self, weights: Vector) -> None:
        self.clocks.version += 1
        self._versions.publish(weights, self.version)

    def _maybe_recovered(self) -> None:
        """Serves again once every member has resumed. Rounds go on at the slowest member's, whatever was lost."""
        if self.phase is not Phase.RECOVERING or not self.clocks.view.number:
            return
        if not set(self.clocks.members) <= self._resumed:
            return
        if self.policy.rounds:
            self.clocks.version = max(self.version, self.clocks.slowest())
            self._versions.current.version = self.version
        for entry in self.clocks.table.values():
            entry.seen = None
        self.phase, self.clocks.is_recovering = Phase.SERVING, False

    def _reply(self, worker: str, clock: int, pushed_at: float) -> Reply:
        entry, published = self.clocks.entry(worker), self._versions.pin()
        assert published is not None
        return Reply(
            worker, clock, entry.outcome, entry.reason, self.term, published, entry.staleness, entry.others,
            len(self.clocks.view.seats), entry.lr, self.durable.get(worker, 0), pushed_at, self.clocks.is_done(worker),
        )  # fmt: skip

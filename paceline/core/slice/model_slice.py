"""One server's slice of the model: weights, optimizer, clocks and policy; pushes go in, replies come out."""

from dataclasses import asdict

import numpy as np

from paceline.core.errors import BadPush, Fenced, Gap, NotYet, VersionGone
from paceline.core.settings.config import Options, ScheduleConfig
from paceline.core.slice.accumulator import Accumulator
from paceline.core.slice.rate import Rate
from paceline.core.slice.state import Phase, SliceState, Standing
from paceline.core.slice.versions import Versions
from paceline.core.steps.effective import Pool, effective, scheduled
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.clocks import Clocks, Entry
from paceline.core.sync.policy import Gathered, Policy, build_policy
from paceline.core.values import Dense, Outcome, Published, Push, Reply, Sparse, Switch, Vector, Verdict, View


class ModelSlice:
    """The heart: a push that must wait is a reply not yet sent. Every call returns the replies that may go out now.
    Not thread-safe: its driver serialises calls, and releases each reply's weights when they are sent."""

    def __init__(
        self, length: int, policy: Policy, optimizer: Optimizer, term: int = 1, schedule: ScheduleConfig | None = None,
        epochs: float = 1.0, pool: Pool | None = None,
    ) -> None:  # fmt: skip
        """`optimizer`: the run's; the policy may fold with another one. `epochs`: the run's length, for the schedule. `pool`:
        who carries out what both are meant for one process to do; None: they are taken as they are."""
        self.length, self.term = length, term
        self._optimizer, self._schedule, self._epochs = optimizer, schedule or ScheduleConfig(lr_scale="none"), epochs
        self._pool = pool
        self.clocks = Clocks()
        self.phase = Phase.EMPTY
        self.durable: dict[str, int] = {}
        """Newest clock of each worker that a snapshot on disk covers."""
        self.held_from: int | None = None
        """No round at or above this one closes while it is set: a view is on its way to the other servers."""
        self.switch: Switch | None = None
        """The change of policy that was made last."""
        self._slots: list[Vector] = []
        self._begin(policy)
        self._steps = 0
        """Optimizer steps taken."""
        self._waiting: dict[str, tuple[int, float]] = {}
        """worker -> clock and time of the push whose reply is not sent yet."""
        self._resumed: set[str] = set()
        self._digest: bytes | None = None

    def _begin(self, policy: Policy) -> None:
        """Everything that hangs on the policy, anew."""
        pool, asked = self._pool, self._optimizer
        self.policy, self.optimizer = policy, policy.server_optimizer(effective(pool, asked, policy))
        if len(self._slots) != self.optimizer.slots:
            self._slots = self.optimizer.new_slots(self.length)
        gathers = policy.rounds or policy.gathers
        self._gathering = Accumulator(self.length, ordered=policy.rounds) if gathers else None
        self._rate = Rate(scheduled(self._schedule, self._epochs, pool, asked, policy), asked.lr)
        if self._gathering is not None and self._rate.needs_squares:
            self._gathering.squares = 0.0

    # weights
    def initialise(self, weights: Vector, digest: bytes) -> None:
        """Takes the first weights, once; the same ones again change nothing, others are refused."""
        if self.phase is not Phase.EMPTY:
            if self._digest not in (None, digest) and not self.clocks.pushes:
                raise BadPush("The slice has other first weights already: use the same seed and model on every worker.")
            return
        if len(weights) != self.length:
            raise BadPush(f"The first weights have {len(weights):,} values, the slice holds {self.length:,}.")
        self._versions = self._keep(weights, 0)
        self._digest, self.phase = digest, Phase.SERVING

    @property
    def version(self) -> int:
        return self.clocks.version

    @property
    def lr(self) -> float:
        """The schedule's rate for the next fold."""
        return self._rate.at(self.settled, self.clocks.view.examples_per_epoch)

    @property
    def settled(self) -> int:
        """Examples of the pushes counted so far, without those that are still to be folded."""
        return self.clocks.examples - (self._gathering.open_examples if self._gathering is not None else 0)

    @property
    def crowded(self) -> bool:
        """Whether the driver should let a reader finish before the next push."""
        return self.phase is Phase.SERVING and self._versions.crowded

    def pull(self, version: int | None = None, mean: bool = False) -> Published | None:
        """The weights (of `version`, else the current ones), pinned; None while they are not there yet. `mean`: that of the
        versions up to this one instead, where the slice keeps it."""
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
        self._take_view(view)
        self._maybe_recovered()
        return self._settle()

    def _take_view(self, view: View) -> None:
        has_begun = view.switch is not None and self.switch is not None and view.switch.number <= self.switch.number
        self.clocks.take_view(view.begun() if has_begun else view)
        self._rate.members(len(view.seats))

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
        self.clocks.reach(worker, clock)
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
        members = len(self.clocks.view.seats)
        verdict, (lr, rate) = self._admit(push), self._rates(staleness, members)
        self.clocks.advance(push, verdict, staleness, lr)
        self.policy.observe(push, self.clocks)
        if verdict.outcome is Outcome.BUFFERED and self._gathering is not None:
            self._gathering.add(push, self.policy.weight(staleness))
            self.clocks.buffered = self._gathering.pushes
        elif verdict.outcome is Outcome.FOLDED:
            self._fold_one(push, members, rate)
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
        gathering = self._gathering
        open_round = gathering.contributors if gathering else {}
        for worker in open_round:
            table[worker]["clock"] -= 1
        facts = {
            "version": self.version, "pushes": self.clocks.pushes - len(open_round), "steps": self._steps,
            "examples": self.clocks.examples - sum(open_round.values()),
            "clocks": table, "policy": self.policy.state(), "rate": self._rate.state(),
            "switch": None if self.switch is None else asdict(self.switch),
        }  # fmt: skip
        total = None
        if gathering is not None and self.policy.gathers and gathering.pushes:
            facts["gathered"] = [gathering.pushes, gathering.examples]
            total = gathering.total.copy()
        slots = [slot.copy() for slot in self._slots]
        return SliceState(self._versions.current.values.copy(), slots, facts, total)

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
        if facts["switch"] is not None:
            self.switch = Switch(**facts["switch"])
            self._begin(build_policy(Options(**self.switch.policy)))
        self.policy.restore(facts["policy"])
        self._rate.restore(facts["rate"])
        if state.gathered is not None and self._gathering is not None:
            self._gathering.restore(state.gathered, *facts["gathered"])
            self.clocks.buffered = self._gathering.pushes
        self._slots, self._steps = list(state.slots), facts["steps"]
        self._versions = self._keep(state.weights, self.version)
        self.note_durable(state)
        self.phase, self.clocks.is_recovering = Phase.RECOVERING, True

    def note_durable(self, state: SliceState) -> None:
        """A snapshot of this state is safe on disk."""
        self.durable = {worker: entry["clock"] for worker, entry in state.table["clocks"].items()}

    # inside
    def _keep(self, weights: Vector, version: int) -> Versions:
        """Where the weights are kept from now on."""
        return Versions(weights, version, self.policy.rounds)

    def _check_form(self, push: Push) -> None:
        if isinstance(push.update, Sparse):
            raise BadPush(
                f"{push.worker} pushed a sparse update to a slice of dense ones. Set updates alike everywhere."
            )

    def _check(self, push: Push) -> None:
        self._check_seat(push.worker, push.incarnation)
        self._check_form(push)
        seat, clock = self.clocks.view.seats[push.worker], self.clocks.entry(push.worker).clock
        if len(push.update) != self.length:
            raise BadPush(f"{push.worker} pushed {len(push.update):,} values to a slice of {self.length:,}.")
        if push.clock > clock + 1:
            raise Gap(f"{push.worker} pushed clock {push.clock}, expected {clock + 1}. Say Resume first.")
        if seat.last is not None and push.clock > seat.last:
            raise BadPush(
                f"{push.worker} pushed clock {push.clock}, but its last one is {seat.last}: the run is stopping."
            )
        if seat.hold is not None and push.clock > seat.hold:
            raise NotYet(
                f"{push.worker} pushed clock {push.clock}; the policy changes once all have reached their hold."
            )
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
        """Folds what is due, changes the policy where that is due, and lets go whoever may."""
        if self.phase is not Phase.SERVING:
            return []
        self._close_due()
        self._maybe_switch()
        may = self.policy.may_proceed
        free = [worker for worker in self._waiting if not self.clocks.is_held(worker) and may(worker, self.clocks)]
        return [self._reply(worker, *self._waiting.pop(worker)) for worker in free]

    def _close_due(self) -> None:
        """Folds rounds that are complete, and sums that are large enough, or that nobody will add to any more."""
        gathering, members = self._gathering, self.clocks.members
        if gathering is None or (self.policy.rounds and not members):
            return
        if self.policy.rounds:
            gathering.advance(self.clocks.in_order(), self._has_pushed)
            while self.policy.is_due(self.clocks) and not self._is_held():
                self._close(gathering)
        elif self.policy.is_due(self.clocks) or (gathering.pushes and all(map(self.clocks.is_done, members))):
            self._close(gathering)

    def _maybe_switch(self) -> None:
        """Begins the policies that the view names: at once one that the others made while this server was away, a newer one
        as soon as every member has done its last clock under the old one (docs/protocol.md#changes-of-policy)."""
        view = self.clocks.view
        are_done = all(seat.hold is None or self.clocks.is_done(worker) for worker, seat in view.seats.items())
        for switch in (view.made, view.switch):
            is_new = self.switch is None or (switch is not None and switch.number > self.switch.number)
            if switch is not None and is_new and (switch == view.made or are_done):
                self._make(switch)

    def _make(self, switch: Switch) -> None:
        """Both halves anew, everybody level, at a version that is the same on all slices; unless a round is held."""
        gathering = self._gathering
        if gathering is not None and gathering.open_examples:  # a held round, or what a snapshot had of a sum
            if self.policy.rounds and self._is_held():
                return
            self._close(gathering)
        self._begin(build_policy(Options(**switch.policy)))
        self.switch, self.clocks.buffered = switch, 0
        self._take_view(self.clocks.view)
        for entry in self.clocks.table.values():
            entry.seen = None
        self.clocks.version = max(self.version, switch.version, self.clocks.slowest() if self.policy.rounds else 0)
        self._versions.renew(self.version, self.policy.rounds)

    def _is_held(self) -> bool:
        return self.held_from is not None and self.version + 1 >= self.held_from

    def _has_pushed(self, worker: str) -> bool:
        """Whether the open round waits for nothing more from the member."""
        return self.clocks.progress(worker) > self.version or self.clocks.is_done(worker)

    def _close(self, gathering: Accumulator) -> None:
        """Ends a round or a sum; a round without any example keeps the weights as they are."""
        lr, squares = self.lr, gathering.squares
        gathered = gathering.close(len(self.clocks.view.seats))
        self.clocks.buffered = 0
        if gathered is not None:
            self._fold(gathered, lr if squares is None else lr * self._rate.gain(gathered, squares))
            return
        target = self._versions.target()
        np.copyto(target, self._versions.current.values)
        self._publish(target)

    def _rates(self, staleness: int, members: int) -> tuple[float, float]:
        """What the worker is told as the rate of its push, and what that folds with."""
        lr = self.policy.rate(self.lr, staleness, members)
        return lr, lr

    def _fold_one(self, push: Push, members: int, lr: float) -> None:
        """Folds a push by itself."""
        if isinstance(push.update, Dense):
            self._fold(Gathered(push.update.values, 1.0, 1, push.examples, members, push.worker), lr)

    def _fold(self, gathered: Gathered, lr: float) -> None:
        target = self._versions.target()
        self._steps += 1
        weights = self._versions.current.values
        self.policy.fold(weights, target, gathered, self.optimizer, lr, self._slots, self._steps)
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
        self.policy.sent(worker, published.values, self.clocks)
        # a worker that is catching up does so under the policy of its seat, or another slice would wait for it
        switch = self.switch if clock >= entry.clock else None
        return Reply(
            worker, clock, entry.outcome, entry.reason, self.term, published, entry.staleness, entry.others,
            len(self.clocks.view.seats), entry.lr, self.durable.get(worker, 0), pushed_at,
            self.clocks.has_ended(worker), switch, self.clocks.view.number,
        )  # fmt: skip

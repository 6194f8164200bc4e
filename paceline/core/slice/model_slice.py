"""One server's slice of the model: weights, optimizer, clocks and policy; pushes go in, replies come out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from paceline.core.errors import BadPush, NotYet, VersionGone
from paceline.core.optimizers.effective import Pool
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.settings.config import ClipConfig, ScheduleConfig
from paceline.core.slice.admission import Admission
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.folding import NewFolding, settled
from paceline.core.slice.policy_switch import PolicySwitch
from paceline.core.slice.recovery import Recovery
from paceline.core.slice.rounds import Rounds
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import Phase, SliceState, Snapshot, Standing
from paceline.core.values import Base, Outcome, Places, Published, Push, Reply, Sparse, Switch, Vector, View


class ModelSlice:
    """The heart: a push that must wait is a reply not yet sent. Every call returns the replies that may go out now.
    Not thread-safe: its driver serialises calls, and releases each reply's weights when they are sent."""

    def __init__(
        self,
        length: int,
        policy: Policy,
        optimizer: Optimizer,
        term: int = 1,
        schedule: ScheduleConfig | None = None,
        epochs: float = 1.0,
        pool: Pool | None = None,
        folding: NewFolding = DenseFolding,
        layout: Layout | None = None,
        clip: ClipConfig | None = None,
    ) -> None:
        """`optimizer`: the run's; the policy may fold with another one. `epochs`: the run's length, for the schedule. `pool`:
        the workers over which rate and momentum of one process are spread; None: use them unscaled. `folding`: how
        pushes get into the weights. `layout`: which parts of which tensors the slice holds, for parameter groups;
        ConfigError if a group matches none. `clip`: limits of the mean gradient of a lock-step."""
        self.length = length
        self.term = term
        self.phase = Phase.EMPTY
        self.clocks = Clocks()
        schedule = schedule or ScheduleConfig(lr_scale="none")
        self._half = ServerHalf(length, policy, optimizer, schedule, epochs, pool, layout, clip)
        self.folding = folding(length, self.clocks, self._half)
        self._admission = Admission(term, length, self.clocks, self.folding.check_form)
        self._rounds = Rounds(self.clocks, self._half, self.folding)
        self._recovery = Recovery(self.clocks, self._half, self.folding)
        self._policy_switch = PolicySwitch(self.clocks, self._half, self._rounds, self.folding, self._recovery)
        self._waiting: dict[str, tuple[int, float]] = {}
        """worker -> clock and time of the push whose reply is not sent yet."""
        self._looked: tuple[int, int] | None = None
        """What the policy's `waits_on` was when all that wait were asked last."""
        self._digest: bytes | None = None
        self.kept_switch = 0
        """The last change of policy in the newest snapshot on disk."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._half.policy

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that the slice folds with under this policy."""
        return self._half.optimizer

    def weights(self, vector: Vector) -> list[Vector]:
        """As `ServerHalf.weights`. Any thread may call it."""
        return self._half.weights(vector)

    @property
    def switch(self) -> Switch | None:
        """The last change of policy."""
        return self._half.made

    @property
    def switch_number(self) -> int:
        """Changes of policy so far."""
        return self._half.number

    @property
    def version(self) -> int:
        return self.clocks.version

    @property
    def lr(self) -> float:
        """The schedule's rate for the next fold."""
        return self._half.rate.at(settled(self.clocks, self.folding.sum), self.clocks.view.examples_per_epoch)

    # weights
    def initialise(self, weights: Vector, digest: bytes) -> None:
        """Takes the first weights, once; repeating them changes nothing, others are refused."""
        if self.phase is not Phase.EMPTY:
            if self._digest not in (None, digest) and not self.clocks.pushes:
                raise BadPush("The slice has other first weights already: use the same seed and model on every worker.")
            return
        if len(weights) != self.length:
            raise BadPush(f"The first weights have {len(weights):,} values, the slice holds {self.length:,}.")
        self.folding.start(weights, 0)
        self._digest = digest
        self.phase = Phase.SERVING

    @property
    def crowded(self) -> bool:
        """Whether the driver should let a reader finish before the next push."""
        return self.phase is Phase.SERVING and self.folding.crowded

    def take_back(self) -> None:
        """Takes what makes the slice crowded from its readers, whose weights are lost (`Published.is_lost`)."""
        self.folding.take_back()

    def pull(self, version: int | None = None, mean: bool = False) -> Published | None:
        """The weights of `version` (None: the current ones), pinned; None before they have come. `mean`: the mean of the
        versions up to this one instead, if the slice keeps it."""
        is_ready = self.phase is Phase.SERVING and not self._policy_switch.is_late
        if not is_ready or (version is not None and version > self.version):
            return None
        found = self.folding.pull(version, mean)
        if found is None:
            raise VersionGone(f"Version {version} is no longer kept; the slice is at {self.version}.")
        return found

    def release(self, published: Published) -> None:
        """The reader of a reply or a pull has finished with its weights."""
        self.folding.release(published)

    def answer(self, base: Base, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        """The weights at the wanted places; without these, at the places that differ from `base`, and also at `also`.
        None if the differences are no longer known or more than `most` places."""
        return self.folding.answer(base.version if base.term == self.term else None, wanted, also, most)

    def needs(self, worker: str) -> bool:
        """Whether the values that this worker pushed last are still needed."""
        return self._rounds.needs(worker)

    def next_in_order(self) -> str | None:
        """The worker whose push a round's sum waits for; None without rounds."""
        return self._rounds.next_in_order()

    # membership
    def view(self, view: View) -> list[Reply]:
        """Takes the new view; a departure may release waiting workers."""
        if view.number <= self.clocks.view.number:
            return []
        self._waiting = {worker: push for worker, push in self._waiting.items() if self._keeps_seat(worker, view)}
        self._policy_switch.take_view(view)
        return self._settle()

    def waits_ended_by(self, view: View) -> list[float]:
        """Returns since when those pushes have waited (`Push.time`) that get no reply, as this view takes their workers'
        seats."""
        return [time for worker, (_, time) in self._waiting.items() if not self._keeps_seat(worker, view)]

    def _keeps_seat(self, worker: str, view: View) -> bool:
        """Whether the process that has pushed last is still the worker's in this view."""
        seat = view.seats.get(worker)
        return seat is not None and seat.incarnation == self.clocks.entry(worker).incarnation

    @property
    def lacks_weights(self) -> Switch | None:
        """A change that goes back to older weights and waits for them."""
        return self._policy_switch.lacks

    def hold(self, number: int, state: SliceState | None) -> list[Reply]:
        """Takes the snapshot that the change with this number goes back to; None: there is none that can be used."""
        self._policy_switch.hold(number, state)
        return self._settle()

    @property
    def open_from(self) -> int | None:
        """The first round that is kept open; None if none is."""
        return self._rounds.open_from

    def keep_rounds_open(self, first: int | None) -> list[Reply]:
        """Keeps rounds from `first` on open until called with a later one, or with None: the chief's slice waits for the other
        servers. Changes nothing where that is so already."""
        if first == self.open_from:
            return []
        self._rounds.keep_open(first)
        return self._settle()

    def resume(self, worker: str, incarnation: int) -> Standing:
        """The worker's state here. Changes nothing: the slice alone moves its clocks."""
        self._admission.check_resume(worker, incarnation)
        clocks = self.clocks
        durable = clocks.durable.get(worker, 0)
        oldest = 0 if self.phase is Phase.EMPTY else self.folding.oldest
        entry = clocks.entry(worker)
        return Standing(self.term, entry.clock, durable, self.version, self.phase, oldest, entry.position)

    # the hot path
    def push(self, push: Push) -> list[Reply]:
        """Counts a push once: no reply yet, its own, or everyone's. NotYet: repeat later. A push of an older term counts as
        computed on today's weights: versions of two terms can't be compared."""
        self._admission.check(push, self.phase)
        if self._policy_switch.is_late:
            raise NotYet("The slice waits for the older weights that the run has gone back to.")
        clocks, folding, policy = self.clocks, self.folding, self._half.policy
        if push.clock <= clocks.entry(push.worker).clock:
            return self.ask(push.worker, push.incarnation, push.clock, push.time)
        is_fresh = push.base.term == self.term
        if not is_fresh:
            self._check_caught_up(push)
            push = replace(push, base=Base(self.term, clocks.version))
        staleness = clocks.version - push.base.version
        members = len(clocks.view.seats)
        verdict = self._admission.verdict(push, policy, self.switch)
        lr, rate = folding.rates(self._rate(push), staleness, members)
        clocks.advance(push, verdict, staleness, lr, is_fresh)
        policy.observe(push, clocks)
        if verdict.outcome is Outcome.BUFFERED:
            self._rounds.add(push, staleness)
        elif verdict.outcome is Outcome.FOLDED:
            folding.fold_one(push, members, rate)
        self._waiting[push.worker] = (push.clock, push.time)
        return self._settle(push.worker)

    def ask(self, worker: str, incarnation: int, clock: int, time: float) -> list[Reply]:
        """The reply to a push that was counted before: the scalars of its worker's last push and today's weights, or still
        to come; Gap where it never came. A clock before the last one waits for nobody: its worker is catching up."""
        self._admission.check_repeat(worker, incarnation, clock, self.phase)
        self.clocks.note_repeat(worker)
        if clock < self.clocks.entry(worker).clock:
            return [self._reply(worker, clock, time)]
        self._waiting[worker] = (clock, self._waiting.get(worker, (clock, time))[1])
        return self._settle()

    # snapshots
    def state(self) -> SliceState:
        """A consistent copy of the whole state, without the pushes of an open round."""
        return self._recovery.state()

    def snapshot(self) -> Snapshot:
        """The same without a wait: it is complete when its copies are. One at a time."""
        return self._recovery.snapshot()

    @property
    def lacks(self) -> int:
        """Arrays of the slice's length that a snapshot would have to make."""
        return self._recovery.lacks

    def supply(self, arrays: Iterable[Vector]) -> None:
        """Takes arrays for the next snapshot."""
        self._recovery.supply(arrays)

    def note_durable(self, table: dict[str, Any]) -> None:
        """The snapshot with this table (`SliceState.table`) is safely on disk."""
        self.clocks.durable = {worker: entry["clock"] for worker, entry in table["clocks"].items()}
        self.kept_switch = 0 if table["switch"] is None else table["switch"]["number"]

    def restore(self, state: SliceState) -> None:
        """Starts from a snapshot, and serves at once. A slice that has a view already closes the rounds in which no member
        takes part."""
        self._recovery.restore(state)
        self.note_durable(state.table)
        self.phase = Phase.SERVING
        if self.clocks.view.number and self.policy.rounds:
            self.clocks.take_view(self.clocks.view)  # the snapshot has the incarnations of its time
            self._settle()

    # inside
    def _rate(self, push: Push) -> float:
        """The schedule's; where members take the same steps, the one that the first report of this round had."""
        if self._half.policy.same_steps:
            found = (entry.lr for entry in self.clocks.table.values() if entry.round == push.round > 0)
            return next(found, self.lr)
        return self.lr

    def _check_caught_up(self, push: Push) -> None:
        """NotYet where the worker has sent a clock that an older term answered again, and it still waits here."""
        if push.worker in self._waiting:
            raise NotYet(
                f"{push.worker} pushed clock {push.clock}; its clock {push.clock - 1} still waits here for the other workers."
            )

    def _settle(self, pusher: str | None = None) -> list[Reply]:
        """Makes due folds and policy changes, and releases the workers that may go on. `pusher`: nothing but its push has
        changed."""
        if self.phase is not Phase.SERVING:
            return []
        self._rounds.close_due()
        self._policy_switch.make_due()
        clocks = self.clocks
        may = self._half.policy.may_proceed
        if pusher is None:
            self._looked = None
        asked = self._waiting if pusher is None or self._has_changed() else (pusher,)
        free = [worker for worker in asked if not clocks.awaits_switch(worker) and may(worker, clocks)]
        return [self._reply(worker, *self._waiting.pop(worker)) for worker in free]

    def _has_changed(self) -> bool:
        """Whether a push may have set others free than its own worker."""
        waits_on, before = self._half.policy.waits_on, self._looked
        if waits_on == "any push":
            return True
        on = self.clocks.version if waits_on == "version" else self.clocks.slowest()
        self._looked = self._half.number, on
        return self._looked != before

    def _reply(self, worker: str, clock: int, pushed_at: float) -> Reply:
        clocks, half = self.clocks, self._half
        entry = clocks.entry(worker)
        published = self.folding.current()
        half.policy.sent(worker, published.values, clocks)
        return Reply(
            worker,
            clock,
            outcome=entry.outcome,
            reason=entry.reason,
            term=self.term,
            weights=published,
            staleness=entry.staleness,
            others=entry.others,
            members=len(clocks.view.seats),
            lr=entry.lr,
            pushed_at=pushed_at,
            stop=clocks.has_ended(worker, clock),
            durable=clocks.durable.get(worker, 0),
            # a worker that is catching up does so under the policy of its seat, or another slice would wait for it
            switch=half.made if clock >= entry.clock else None,
            view=clocks.view.number,
        )

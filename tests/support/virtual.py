"""A whole run in virtual time: the real ModelSlice, Run and Policy objects behind a bad network, workers that talk to
them as processes do, and crashes, restarts, joins and leaves at any moment."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.errors import PacelineError
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.policy import build_policy, from_shorthand
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import Phase
from paceline.core.values import Dense, Outcome, Sparse, Vector
from tests.support.virtual_server import Known, News, Server
from tests.support.virtual_time import Body, Box, Conditions, Network, Task
from tests.support.virtual_worker import Worker

Gradient = Callable[[str, int, Vector], Vector]
_TICK = 0.5
"""Between two looks of the chief at leases, and two snapshots of a server (seconds)."""
_SNAPSHOTS = 0.5
"""Between two snapshots in lock-step (seconds)."""
_STORED = 0.5
"""Until one reports again which snapshots it has (seconds)."""
_SWITCHING = 0.1
"""Until a follower that has something to write may report again (seconds)."""


class Cluster(Network):
    """Servers, the chief's run, workers, and the clock they all live by."""

    def __init__(
        self,
        seed: int,
        config: Config,
        gradient: Gradient,
        optimizer: Optimizer,
        length: int,
        rounds: int,
        conditions: Conditions | None = None,
    ) -> None:
        super().__init__(seed, conditions or Conditions())
        self.seed = seed
        self.config = config
        self.gradient = gradient
        self.optimizer = optimizer
        self.plan = make_plan([("weights", (length,))], config.servers, config.plan)
        self.places = [slice(parts[0].start, parts[0].stop) for parts in self.plan.slices]
        steps = build_policy(config.policy).most_steps
        self.is_leased = config.data.leases and config.budget == "total"
        streams = config.workers if self.is_leased else (config.start_when or config.workers)
        self.examples = rounds * streams * config.batch_size * steps
        self.steps = rounds * steps if self.is_leased else self.examples
        """Mini-batches of each stream in an epoch."""
        self.servers: list[Server] = []
        self.servers += [Server(self, index) for index in range(config.servers)]
        self.run = Run(config)
        self.run.ready(0.0)
        self.journal = ""
        self._save()
        self._published = 0
        self._calls: dict[int, tuple[Known, Box]] = {}
        """Of followers that wait for news."""
        self.workers: dict[str, Worker] = {}
        self.processes: list[Worker] = []
        self.acknowledged: dict[tuple[int, str], dict[int, Outcome]] = {}
        """What became of every push that was not empty: (server, worker) -> clock -> outcome."""
        self.errors: list[tuple[float, str, PacelineError]] = []
        self.exits: list[tuple[str, PacelineError]] = []
        self.ending: set[tuple[str, int]] = set()
        """Members and their incarnations since their last clocks were named."""
        self.gone_back = 0
        """How often a worker wanted all servers to go back."""
        self.after(_TICK, self._tick)

    # the chief
    def call_chief(self, action: Callable[[Run], Any], is_repeated: bool = True) -> Body:
        def act() -> Any:
            try:
                return action(self.run)
            finally:
                self.publish()

        return (self.call if is_repeated else self.call_once)(self.servers[0], act)

    def publish(self) -> None:
        """As server/chief.py: writes down who counts, then tells the servers; rounds wait until all have the view."""
        self.run.extend(lambda: self.servers[0].slice.clocks, self.now)
        if self.run.phase is RunPhase.STOPPING:
            self.ending |= {(name, seat.incarnation) for name, seat in self.run.membership.view.seats.items()}
        if self._mark() != self._saved:
            self._save()
        view = self.run.membership.view
        is_new = view.number != self._published
        if is_new:
            self._published = view.number
            self._bring_view()
        self._free_batches()
        if is_new:
            self._spread()

    def _free_batches(self) -> None:
        self.run.leasing.free(self.servers[0].unseated)
        clocks = self.servers[0].slice.clocks
        self.run.trained(clocks.trained, clocks.gone, clocks.round_examples)

    def _bring_view(self) -> None:
        first = self.servers[0]
        self.run.publish(first.slice.version)
        first.deliver(first.slice.keep_rounds_open(self.run.open_from))
        first.follow(self.run.membership.view)

    def _mark(self) -> tuple[object, ...]:
        """What makes the chief save when it changes."""
        run, members = self.run, self.run.membership
        back, warnings = run.common_snapshots.back.number, len(run.warnings.listed)
        return members.view.number, run.phase, sum(members.incarnations.values()), back, warnings, run.leasing.number

    def _save(self) -> None:
        self._saved = self._mark()
        self.journal = json.dumps(self.run.state())

    def hear(self, server: Server, term: int, known: Known, box: Box) -> None:
        """As ReportServer and FollowView: a follower reports, and gets its news as soon as there is any."""
        if not self.servers[0].is_up:
            return
        if self.run.other_servers.terms.get(server.index, term) != term:
            self.run.common_snapshots.soon(self.now)
        self.run.other_servers.acknowledged(server.index, term, known.view, known.switch, known.gone, known.unseated)
        self._free_batches()
        self.run.common_snapshots.reported(server.index, known.kept, known.due, known.back)
        self.run.divergence.reported(server.index, known.stored, known.spared)
        self._maybe_release()
        self._maybe_switched()
        self._calls[server.index] = known, box
        self._spread()
        is_busy = self.run.policy_change.is_under_way or not self.run.common_snapshots.is_written
        if is_busy or self.run.divergence.is_on:
            self.after(_SWITCHING if is_busy else _STORED, partial(self._answer, server.index, box))

    def _spread(self) -> None:
        """Answers the followers that wait for news."""
        common = self.run.common_snapshots
        for index, (known, box) in list(self._calls.items()):
            is_told = known.due == common.due and known.common == (common.newest or 0)
            is_told = is_told and known.spared == self.run.divergence.spared(index)
            if known.view != self.run.membership.view.number or not is_told or common.order(index):
                self._answer(index, box)
        self._maybe_release()

    def _answer(self, index: int, box: Box) -> None:
        known, waiting = self._calls.get(index, (None, None))
        if known is None or box is not waiting:
            return
        del self._calls[index]
        common, view = self.run.common_snapshots, self.run.membership.view
        spared = self.run.divergence.spared(index)
        news = News(view, common.due, common.newest or 0, common.order(index), spared)
        extra = self.conditions.view_delay if known.view != view.number else 0.0
        self.carry(partial(box.fill, news), extra=extra)

    def _maybe_release(self) -> None:
        first = self.servers[0]
        if first.is_up and first.slice.open_from != self.run.open_from:
            first.deliver(first.slice.keep_rounds_open(self.run.open_from))
            self.run.counted(first.slice.clocks, self.now)

    def _maybe_switched(self) -> None:
        first = self.servers[0]
        if first.is_up and self.run.maybe_switched(first.kept_switch):
            self.publish()

    def server_is_back(self, server: Server) -> None:
        if not server.index:
            self.run = Run(self.config)
            self.run.ready(self.now)
            self.run.restore(json.loads(self.journal), self.now)
            self.run.counted(server.slice.clocks, self.now)
            self._published = 0
            self._calls = {}
            self.publish()

    def _look_after_snapshots(self) -> None:
        """As server/chief.py: names common snapshots, and goes back to one where that is the order."""
        common, first = self.run.common_snapshots, self.servers[0]
        self._report_own()
        if first.versions.follow(common.order(0)):
            self.run.workers.fell_back()
            self.run.counted(first.slice.clocks, self.now)
            if not self.run.is_followed:
                self._bring_view()
            self._maybe_release()
            self._report_own()
            self._save()
        first.versions.bring_good_weights()
        self.run.divergence.reported(0, first.versions.stored, first.versions.spared)
        self.run.look_after_good(self.now)
        self.run.give_up(lambda: first.slice.clocks, self.now)
        first.versions.spare(self.run.divergence.spared(0))
        if self.run.name_snapshot(lambda: first.slice.clocks, _SNAPSHOTS, self.now):
            self._maybe_release()
        first.versions.heard(common.due, common.newest or 0)

    def _report_own(self) -> None:
        own = self.servers[0].versions
        self.run.common_snapshots.reported(0, own.durable, own.due, own.back)

    def go_back(self, worker: str, incarnation: int, terms: Sequence[int]) -> bool | None:
        """As GoBack: whether all servers are back; None: not yet."""
        common = self.run.common_snapshots
        self.run.membership.check(worker, incarnation)
        if not common.has_all:
            return None
        if any(self.run.other_servers.terms.get(index, 0) > terms[index] for index in range(1, len(terms))):
            return True
        if self.servers[0].term > terms[0]:
            return True
        if not common.go_back():
            return False
        self._spread()
        return None if common.is_going_back else True

    def _tick(self) -> None:
        self.after(_TICK, self._tick)
        for server in self.servers:
            server.take_snapshot()
        if self.servers[0].is_up:
            self.run.tick(self.now)
            self._maybe_switched()
            can_score = all(server.is_up and server.slice.phase is Phase.SERVING for server in self.servers)
            epoch, is_final = self.run.due_score() or (0, False)
            if is_final and can_score:
                versions = [server.slice.version for server in self.servers]
                seconds = self.run.phases.seconds(self.now)
                self.run.score(Score(epoch, seconds, versions, {}, final=True), self.now)
            self._look_after_snapshots()
            self.publish()
            self._spread()

    # workers
    def step_seconds(self, worker: str) -> float:
        straggles = 10.0 if self.rng.random() < self.conditions.stragglers else 1.0
        return self.conditions.step * self.conditions.slow.get(worker, 1.0) * straggles

    def is_blank(self, worker: str, clock: int) -> bool:
        """Whether this clock's gradient can't be used, whichever incarnation computes it."""
        return random.Random(f"{self.seed} {worker} {clock}").random() < self.conditions.blank

    def update_of(self, values: Vector) -> Dense | Sparse:
        """What a worker sends of its values."""
        if self.config.updates != "sparse":
            return Dense(values)
        places = np.flatnonzero(values)
        return Sparse(places, values[places], len(values))

    def start_worker(self, name: str, was_fenced: bool = False) -> None:
        self.workers[name] = Worker(self, name, was_fenced)

    def crash_worker(self, name: str, replaced_after: float | None = None) -> None:
        self.workers[name].stop()
        if replaced_after is not None:
            self.after(replaced_after, lambda: self.start_worker(name))

    def tell_to_leave(self, name: str) -> None:
        worker = self.workers[name]
        worker.stop()
        Task(self, worker.leave(False))

    def until_finished(self, deadline: float) -> None:
        """Lets time pass until the run is finished; AssertionError at the virtual deadline."""
        while self.run.phase is not RunPhase.FINISHED:
            self.next_event()
            assert self.now < deadline, f"stalled in phase {self.run.phase}: {self.describe()}"
        assert not self.errors, self.errors

    def begin_again(self, epochs: int, workers: Sequence[str], unsaved: Server | None = None) -> None:
        """As a finished run that is started again with more epochs. `unsaved`: a server that died before its last snapshot."""
        for server in self.servers:
            if server is not unsaved:
                server.take_last_snapshot()
        self._save()
        self.config = self.config.model_copy(update={"epochs": epochs})
        for server in self.servers:
            server.crash(self.rng.uniform(0.1, 1.0))
        while self.run.phase is RunPhase.FINISHED:
            self.next_event()
        for name in workers:
            self.after(self.rng.uniform(0.1, 3.0), partial(self.start_worker, name))

    @property
    def is_undisturbed(self) -> bool:
        """Whether every process that was a member as the last clocks were named, or since, has come to its own."""
        incarnations, finished = self.run.membership.incarnations, self.run.workers.finished
        return all(name in finished and incarnations[name] == incarnation for name, incarnation in self.ending)

    def acknowledged_workers(self) -> set[str]:
        """Who has had an answer to a push."""
        return {worker for _, worker in self.acknowledged}

    def describe(self) -> str:
        return "; ".join(
            f"server {server.index} {server.slice.phase} v{server.slice.version} open from {server.slice.open_from} "
            f"{server.slice.policy.__class__.__name__} switch {server.slice.switch} "
            f"view {server.slice.clocks.view.number} {server.slice.clocks.view.seats} "
            f"clocks { {name: entry.clock for name, entry in server.slice.clocks.table.items()} }"
            for server in self.servers
        )


def one_hot(names: Sequence[str], clocks: int, servers: int) -> Gradient:
    """The ledger: worker w's gradient of clock c is 1 in one element that is theirs alone, on every slice."""
    numbers = {name: number for number, name in enumerate(names)}

    def gradient(worker: str, clock: int, local: Vector) -> Vector:
        block = np.zeros((servers, len(names), clocks), np.float32)
        block[:, numbers[worker], clock] = 1
        return block.reshape(-1)

    return gradient


def make_config(policy: str, **settings: Any) -> Config:
    """`policy`: as on the command line, with more options after commas: 'kbuffered:3,damped=true'."""
    short, *more = policy.split(",")
    options = from_shorthand(short) | dict(option.split("=") for option in more)
    common = {"policy": Options(**options), "epochs": 1, "batch_size": 1, "batch": "worker", "data": {"leases": False}}
    return Config(**(common | settings))

"""One slice with its members, one worker's half of a policy, and pushes written short."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.core import kernels
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.policy import Own, build_policy
from paceline.core.settings.config import ClipConfig, Options, ScheduleConfig
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.folding import NewFolding
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import AS_SET, Base, Dense, Empty, Manner, Push, Reply, Seat, Update, View

PLAIN = Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)


class OneSlice:
    """A slice whose workers push what the test says; clocks and bases are right unless they are given."""

    def __init__(
        self,
        policy: str = "bsp",
        workers: Sequence[str] = ("a", "b"),
        weights: Sequence[float] = (0.0,),
        optimizer: Optimizer = PLAIN,
        schedule: ScheduleConfig | None = None,
        epochs: float = 1.0,
        per_epoch: int = 0,
        layout: Layout | None = None,
        clip: ClipConfig | None = None,
        **options: object,
    ) -> None:
        """`per_epoch`: training examples of the data set, for the schedule; `layout`: for groups of tensors; `clip`: of a
        mean gradient."""
        self.layout = layout
        self.clip = clip
        self.policy = Options(name=policy, **options)
        self.optimizer = optimizer
        self.per_epoch = per_epoch
        self.schedule = (schedule, epochs)
        self.slice = self._new_slice(len(weights), 1)
        self.slice.initialise(np.array(weights, np.float32), b"first")
        self.bases = {worker: Base(1, 0) for worker in workers}
        self.answered: dict[str, int] = {}
        self.seats(*workers)

    folding: NewFolding = DenseFolding

    def _new_slice(self, length: int, term: int) -> ModelSlice:
        policy = build_policy(self.policy)
        return ModelSlice(
            length,
            policy,
            self.optimizer,
            term,
            *self.schedule,
            folding=self.folding,
            layout=self.layout,
            clip=self.clip,
        )

    def seats(self, *workers: str, **seats: Seat) -> list[Reply]:
        """The next view: who counts from now on."""
        known = self.slice.clocks.view
        taken = {worker: known.seats.get(worker, Seat(1, 0)) for worker in workers} | seats
        for worker in taken:
            self.bases.setdefault(worker, Base(self.slice.term, self.slice.version))
        return self.slice.view(View(known.number + 1, taken, self.per_epoch))

    def push(
        self,
        worker: str,
        *gradient: float,
        update: Update | None = None,
        clock: int | None = None,
        examples: int = 1,
        incarnation: int | None = None,
        view: int = 0,
        base: Base | None = None,
        time: float = 0.0,
        manner: Manner = AS_SET,
        round: int | None = None,
        dropped: bool = False,
    ) -> list[Reply]:
        """Pushes a gradient (none: an empty update); notes the bases that the replies give. `round`: the clock if None."""
        if update is None:
            update = Dense(np.array(gradient, np.float32)) if gradient else Empty(self.slice.length)
        seat, last = self.slice.clocks.seat(worker), self.slice.clocks.table.get(worker)
        clock = clock if clock is not None else (last.clock if last else 0) + 1
        push = Push(
            worker,
            incarnation if incarnation is not None else seat.incarnation if seat else 1,
            clock,
            update,
            0 if isinstance(update, Empty) and not dropped else examples,
            base or self.bases.get(worker, Base(self.slice.term, self.slice.version)),
            view,
            time,
            manner,
            clock if round is None else round,
            dropped,
        )
        return self.sent(self.slice.push(push))

    def ask(self, worker: str, clock: int, incarnation: int = 1) -> list[Reply]:
        return self.sent(self.slice.ask(worker, incarnation, clock, 0.0))

    def sent(self, replies: list[Reply]) -> list[Reply]:
        """The replies have reached their workers."""
        for reply in replies:
            self.answered[reply.worker] = reply.clock
            self.bases[reply.worker] = Base(reply.term, reply.weights.version)
            self.slice.release(reply.weights)
        return replies

    def restart(self) -> None:
        """The server comes back from a snapshot of this moment, its table read from JSON. Every member asks for the reply that
        it still waits for, where that push is in the snapshot, and pulls."""
        state, view = self.slice.state(), self.slice.clocks.view
        state = replace(copy.deepcopy(state), table=json.loads(json.dumps(state.table)))
        self.slice = self._new_slice(self.slice.length, self.slice.term + 1)
        self.slice.restore(state)
        self.slice.view(view)
        for worker, seat in view.seats.items():
            if self.slice.clocks.entry(worker).clock > self.answered.get(worker, 0):
                self.ask(worker, self.slice.clocks.entry(worker).clock, seat.incarnation)
        self.bases = {worker: Base(self.slice.term, self.slice.version) for worker in view.seats}

    @property
    def weights(self) -> list[float]:
        found = self.slice.pull()
        assert found is not None
        self.slice.release(found)
        return [float(value) for value in found.values]


class OneWorker:
    """A worker's half of the slice's policy: own steps, what goes out, the mix. Its gradients are handed in."""

    def __init__(self, one: OneSlice, name: str) -> None:
        self.one = one
        self.name = name
        self.policy = build_policy(one.policy)
        local = np.array(one.weights, np.float32)
        self.own = Own(local, one.optimizer, one.slice.lr, local.copy() if self.policy.keeps_start else None)
        self.stepper = self.policy.worker_optimizer(one.optimizer)
        self.own.slots = self.stepper.new_slots(len(local)) if self.stepper else []

    def push(self, *gradients: Sequence[float], examples: int = 1) -> list[Reply]:
        """One clock: each gradient is a mini-batch's; none: there was none that can be used."""
        last = None
        for gradient in gradients:
            last = np.array(gradient, np.float32)
            if self.stepper is not None:
                self.own.steps += 1
                local, slots, steps = self.own.local, self.own.slots, self.own.steps
                self.stepper.step(local, local, last, 1.0, self.own.lr, slots, steps)
        values = self.policy.outgoing(last, self.own)
        return self.one.push(self.name, *([] if values is None else values), examples=examples)

    def take(self, reply: Reply, gradient: Sequence[float] = ()) -> None:
        """The reply to this worker's push has come; `gradient` is for its own plain step."""
        local = self.own.local
        self.own.lr = reply.lr
        alpha = self.policy.alpha(reply.others, reply.members)
        if self.policy.takes_local_step and alpha != 1:
            kernels.plain_step(local, np.array(gradient, np.float32), reply.lr)
        kernels.mix(local, reply.weights.values, alpha)
        if self.own.start is not None:
            np.copyto(self.own.start, local)

    @property
    def local(self) -> list[float]:
        return [float(value) for value in self.own.local]


def who(replies: Sequence[Reply]) -> set[str]:
    """Whose replies they are."""
    return {reply.worker for reply in replies}

"""One slice with its members, and pushes written short."""

from collections.abc import Sequence

import numpy as np

from paceline.core.config import Options
from paceline.core.model_slice import ModelSlice
from paceline.core.optimizer import Optimizer, Sgd
from paceline.core.policy import build_policy
from paceline.core.values import Base, Dense, Empty, Push, Reply, Seat, Update, View

PLAIN = Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)


class OneSlice:
    """A slice whose workers push what they are told to; clocks and bases are right unless they are given."""

    def __init__(
        self,
        policy: str = "bsp",
        workers: Sequence[str] = ("a", "b"),
        weights: Sequence[float] = (0.0,),
        optimizer: Optimizer = PLAIN,
        **options: object,
    ) -> None:
        policy_object = build_policy(Options(name=policy, **options))
        self.slice = ModelSlice(len(weights), policy_object, optimizer)
        self.slice.initialise(np.array(weights, np.float32), b"first")
        self.bases = {worker: Base(1, 0) for worker in workers}
        self.seats(*workers)

    def seats(self, *workers: str, **seats: Seat) -> list[Reply]:
        """The next view: who counts from now on."""
        known = self.slice.clocks.view
        held = {worker: known.seats.get(worker, Seat(1, 0)) for worker in workers} | seats
        for worker in held:
            self.bases.setdefault(worker, Base(self.slice.term, self.slice.version))
        return self.slice.view(View(known.number + 1, held))

    def push(
        self,
        worker: str,
        *gradient: float,
        clock: int | None = None,
        examples: int = 1,
        incarnation: int | None = None,
        view: int = 0,
        base: Base | None = None,
    ) -> list[Reply]:
        """Pushes a gradient (none: an empty update); notes the bases that the replies give."""
        update: Update = Dense(np.array(gradient, np.float32)) if gradient else Empty(self.slice.length)
        seat, last = self.slice.clocks.seat(worker), self.slice.clocks.table.get(worker)
        push = Push(
            worker,
            incarnation if incarnation is not None else seat.incarnation if seat else 1,
            clock if clock is not None else (last.clock if last else 0) + 1,
            update,
            examples if gradient else 0,
            base or self.bases.get(worker, Base(self.slice.term, self.slice.version)),
            view,
            0.0,
        )
        return self.sent(self.slice.push(push))

    def ask(self, worker: str, clock: int, incarnation: int = 1) -> list[Reply]:
        return self.sent(self.slice.ask(worker, incarnation, clock, 0.0))

    def sent(self, replies: list[Reply]) -> list[Reply]:
        """The replies have reached their workers."""
        for reply in replies:
            self.bases[reply.worker] = Base(reply.term, reply.weights.version)
            self.slice.release(reply.weights)
        return replies

    @property
    def weights(self) -> list[float]:
        found = self.slice.pull()
        assert found is not None
        self.slice.release(found)
        return [float(value) for value in found.values]


def who(replies: Sequence[Reply]) -> set[str]:
    """Whose replies they are."""
    return {reply.worker for reply in replies}

"""Virtual time for the tests: generators as processes, and a network that delays, loses and doubles. Nothing sleeps and
nothing is threaded; one seed is one schedule."""

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self

from paceline.core.errors import PacelineError
from paceline_studies.simulator.timeline import Timeline

Body = Generator[Any, Any, Any]
PATIENCE = 2.0
"""Seconds that a client waits for an answer before it asks again."""


@dataclass
class Conditions:
    """What the network and the workers are like, all drawn from the cluster's seed."""

    delay: tuple[float, float] = (0.001, 0.02)
    drop: float = 0.0
    double: float = 0.0
    step: float = 0.1
    slow: dict[str, float] = field(default_factory=dict)
    stragglers: float = 0.0
    """Share of steps that take ten times as long."""
    blank: float = 0.0
    """Share of clocks whose gradient can't be used, so that an empty update is pushed."""
    view_delay: float = 0.0
    """Added to the way of a view from the chief to the other servers (seconds)."""

    @classmethod
    def drawn(cls, rng: random.Random, workers: Sequence[str], view_delays: Sequence[float]) -> Self:
        """A network and workers for a run with trouble; one of the workers may be slow."""
        return cls(
            delay=(0.001, rng.choice([0.01, 0.2])),
            drop=rng.choice([0.0, 0.02]),
            double=rng.choice([0.0, 0.1]),
            slow={rng.choice(workers): rng.choice([1.0, 5.0])},
            stragglers=rng.choice([0.0, 0.05]),
            view_delay=rng.choice(view_delays),
        )


class Box:
    """Where one answer is waited for; an exception in it is raised at the waiting place. The first answer counts."""

    def __init__(self) -> None:
        self.filled = False
        self.value = None
        self.waiter: Callable[[], None] = lambda: None

    def fill(self, value: Any) -> None:
        if not self.filled:
            self.filled = True
            self.value = value
            self.waiter()


class Task:
    """A generator that lives in virtual time: it yields seconds to sleep, or (Box, patience) to wait for an answer."""

    def __init__(self, network: "Network", body: Body) -> None:
        self.network = network
        self.body = body
        self.result = Box()
        self._turn = 0
        network.after(0.0, lambda: self._resume(0))

    def stop(self) -> None:
        """A crash: nothing of it happens any more."""
        self._turn = -1

    def _resume(self, turn: int, box: Box | None = None) -> None:
        if turn != self._turn:
            return
        self._turn = turn + 1
        value = box.value if box else None
        try:
            wanted = self.body.throw(value) if isinstance(value, Exception) else self.body.send(value)
        except StopIteration as end:
            self.result.fill(end.value)
        except PacelineError as error:
            self.result.fill(error)
        else:
            self._wait_for(wanted, turn + 1)

    def _wait_for(self, wanted: Any, turn: int) -> None:
        if isinstance(wanted, float):
            self.network.after(wanted, lambda: self._resume(turn))
            return
        waited, patience = wanted
        waited.waiter = lambda: self._resume(turn, waited)
        if waited.filled:
            self.network.after(0.0, waited.waiter)
        elif patience:
            self.network.after(patience, lambda: self._resume(turn))


class FarSide(Protocol):
    """Those who are called; what is sent to one that is down is lost."""

    is_up: bool


class Network(Timeline):
    """The clock that all live by, and the way between them."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.conditions = conditions

    def carry(self, action: Callable[[], Any], double: float = 0.0, extra: float = 0.0) -> bool:
        """Takes a message over the network; returns whether it gets there."""
        if self.rng.random() < self.conditions.drop:
            return False
        for _ in range(1 + (self.rng.random() < double)):
            self.after(extra + self.rng.uniform(*self.conditions.delay), action)
        return True

    def call(self, far_side: FarSide, action: Callable[[], Any]) -> Body:
        """A call that is repeated until it is answered; what the far side raises is raised here."""
        while not (answered := (yield from self.call_once(far_side, action))):
            pass
        return answered[0]

    def call_once(self, far_side: FarSide, action: Callable[[], Any]) -> Body:
        """A call that is not repeated: its answer, in a tuple; empty where none comes in time."""
        box = Box()
        self.carry(partial(self._handle, far_side, action, box))
        answer = yield box, PATIENCE
        return (answer,) if box.filled else ()

    def _handle(self, far_side: FarSide, action: Callable[[], Any], box: Box) -> None:
        if not far_side.is_up:
            return
        try:
            answer = action()
        except PacelineError as error:
            answer = error
        self.carry(lambda: box.fill(answer))

"""Faults that a run inflicts on itself, to show what becomes of it: `faults` in the settings. Each kind is one file in
paceline/core/faults; what they say is carried out, by the run's clock, by `paceline run` and by the processes."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Self

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.network_link import NetworkLink
from paceline.core.units import seconds_with_unit

PACKAGE = "paceline.core.faults"
LINK_SECONDS = "link_seconds"
"""Figure of a worker: how long it has waited for an emulated link (seconds)."""
ROLES = ("server", "worker", "evaluator")


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal to the process."""

    at: float
    """Training time of the run (seconds)."""
    name: str
    """As signal.Signals has it, like SIGKILL."""


@dataclass(frozen=True)
class Fault(ABC):
    """What happens to one process, and when."""

    form: ClassVar[str]
    """An example of how it is written."""
    roles: ClassVar[tuple[str, ...]] = ROLES
    """Which processes it can happen to."""
    text: str
    """As it was written."""
    who: str
    """The process, as logs name it: server-0, worker-2, evaluator."""
    begins: float
    """Training time of the run (seconds)."""

    @classmethod
    @abstractmethod
    def read(cls, text: str, rest: str) -> Self:
        """`rest`: what follows the kind's name; ValueError says what is wrong with it."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What the process gets, in order; the first one as the fault begins. None: it happens within the process."""
        return ()

    def link_at(self, seconds: float) -> NetworkLink | None:
        """What the process's messages go over at this training time of the run (seconds); None: nothing is wrong with it."""
        return None

    @classmethod
    def split(cls, rest: str, sign: str) -> tuple[str, str]:
        """'server-0@30s' at its sign; ValueError where it is missing, or where this fault can't happen to that process."""
        who, found, how = (part.strip() for part in rest.partition(sign))
        if not found or not how:
            raise ValueError(f"expected {cls.form!r}.")
        role = re.fullmatch(r"(?:(server|worker)-[0-9]+|(evaluator))", who)
        if not role or (role[1] or role[2]) not in cls.roles:
            names = {"server": "server-0", "worker": "worker-0", "evaluator": "evaluator"}
            known = registry.listed(names[each] for each in cls.roles)
            raise ValueError(f"got {who!r} as the process; expected a name like {known}.")
        return who, how


def read_span(text: str) -> tuple[float, float]:
    """'10s:20s', a beginning and a duration, as (10, 30); ValueError where it is none, or lasts 0 s."""
    begin, sign, lasts = text.partition(":")
    if not sign:
        raise ValueError(f"got {text!r}; expected when it begins and how long it lasts, like 10s:20s.")
    start, duration = seconds_with_unit(begin.strip()), seconds_with_unit(lasts.strip())
    if not duration:
        raise ValueError(f"got {text!r}, which lasts 0 s; write how long it lasts, like 10s:20s.")
    return start, start + duration


ALWAYS = (0.0, inf)


def fault_list(value: Any) -> Any:
    """'kill server-0@3s; freeze ...' as a list of faults; lists may have several in one text, too."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    return tuple(" ".join(part.split()) for text in texts for part in text.split(";") if part.strip())


def read_fault(text: str) -> Fault:
    """One fault; ValueError says what was seen and what was expected."""
    kind, _, rest = text.partition(" ")
    try:
        return registry.find(PACKAGE, Fault, kind).read(text, rest)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise ValueError(f"can't read {text!r}: {error}") from error


def faults_of(texts: Iterable[str], who: str | None = None) -> list[Fault]:
    """All faults in these texts; `who`: of that process alone."""
    found = [read_fault(text) for text in texts]
    return [fault for fault in found if who in (None, fault.who)]


def strangers(texts: Iterable[str], servers: int, workers: int) -> list[str]:
    """Processes that are named, and that a run of this size does not have."""
    counts = {"server": servers, "worker": workers}
    named = [fault.who for fault in faults_of(texts)]
    return [who for who in named if (at := who.partition("-"))[2] and int(at[2]) >= counts[at[0]]]


class RunClock:
    """Goes on between the chief's answers, and while the chief is away; never goes back. Not thread-safe."""

    def __init__(self) -> None:
        self._run: float | None = None
        self._heard = 0.0
        self._told: float | None = None
        """What the chief said last."""
        self._goes = False

    def hear(self, seconds: float | None, now: float) -> None:
        """`seconds`: of the run as the chief says; None where it does not answer. `now`: on any steady clock."""
        if seconds is None:
            return
        self._run = max(seconds, self.read(now))
        self._goes = self._told is not None and seconds != self._told
        self._heard, self._told = now, seconds

    def read(self, now: float) -> float:
        """The run's seconds; -1 before the chief has said anything."""
        if self._run is None:
            return -1.0
        return self._run + (now - self._heard if self._goes else 0.0)

"""A process that stands still for a while, and answers nobody: a machine that swaps, a paused virtual machine."""

from dataclasses import dataclass
from typing import ClassVar, Self

from paceline.core.fault import Fault, Signal, read_span


@dataclass(frozen=True)
class Freeze(Fault):
    """SIGSTOP, then SIGCONT: its connections stay open."""

    form: ClassVar[str] = "freeze worker-2@10s:20s"
    ends: float

    @classmethod
    def read(cls, text: str, rest: str) -> Self:
        who, span = cls.split(rest, "@")
        return cls(text, who, *read_span(span))

    @property
    def signals(self) -> tuple[Signal, ...]:
        return Signal(self.begins, "SIGSTOP"), Signal(self.ends, "SIGCONT")

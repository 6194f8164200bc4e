"""A process that dies at once, as by `kill -9`."""

from dataclasses import dataclass
from typing import ClassVar, Self

from paceline.core.fault import Fault, Signal
from paceline.core.units import seconds_with_unit


@dataclass(frozen=True)
class Kill(Fault):
    """SIGKILL: nothing is saved, no other process learns of it."""

    form: ClassVar[str] = "kill server-0@30s"

    @classmethod
    def read(cls, text: str, rest: str) -> Self:
        who, at = cls.split(rest, "@")
        return cls(text, who, seconds_with_unit(at))

    @property
    def signals(self) -> tuple[Signal, ...]:
        return (Signal(self.begins, "SIGKILL"),)

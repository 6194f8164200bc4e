"""A slow or lossy network link of one worker, emulated: the worker waits for as long as its messages would take longer."""

from dataclasses import dataclass
from typing import ClassVar, Self

from paceline.core.fault import ALWAYS, Fault, read_span
from paceline.core.network_link import NetworkLink


@dataclass(frozen=True)
class Link(Fault):
    """All that the worker sends to servers, and all that it gets, takes this link; for a while, or always."""

    form: ClassVar[str] = "link worker-1=10Mbit,50ms,1%"
    roles: ClassVar[tuple[str, ...]] = ("worker",)
    ends: float
    link: NetworkLink

    @classmethod
    def read(cls, text: str, rest: str) -> Self:
        who, how = cls.split(rest, "=")
        speed, sign, span = how.partition("@")
        return cls(text, who, *(read_span(span) if sign else ALWAYS), NetworkLink.read(speed))

    def link_at(self, seconds: float) -> NetworkLink | None:
        return self.link if self.begins <= seconds < self.ends else None

"""What made a run slow or worse: one file in `causes` is one cause."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.core.chief.advice import Advice
from paceline.core.explain.evidence import Evidence
from paceline.core.registry import find, names

CAUSES = "paceline.core.explain.causes"
"""The folder of causes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found."""

    share: float
    """The part of the workers' time that it costs (ratio), 0 where none; 1 where it puts the model itself in danger."""
    said: str
    """What was seen, in words, without a full stop."""
    advice: Advice
    """What to try."""
    cause: str = ""
    """The cause's name."""
    is_warned: bool = False
    """Whether the run warns of it anyway."""
    workers: tuple[str, ...] = ()
    """Those that it blames."""

    def __str__(self) -> str:
        return f"cause: {self.said}. Try {self.advice.text}."


def finding_of(facts: Mapping[str, Any]) -> Finding:
    """A finding from its plain values, as `asdict` makes them."""
    advice = facts["advice"]
    plain = {"advice": Advice(advice["text"], tuple(advice["settings"])), "workers": tuple(facts.get("workers", ()))}
    return Finding(**{**facts, **plain})


class Cause(ABC):
    """One thing that can make a run slow or worse."""

    is_warned: ClassVar[bool] = False
    """Whether the run warns of it anyway."""

    @abstractmethod
    def look(self, evidence: Evidence) -> Finding | None:
        """What the evidence says about it; None where it says nothing."""


def causes(evidence: Evidence) -> list[Finding]:
    """What made the run slow or worse, the dearest first; nothing where nothing is wrong."""
    found = []
    for name in names(CAUSES):
        cause = find(CAUSES, Cause, name)()
        if (seen := cause.look(evidence)) is not None:
            found.append(replace(seen, cause=name, is_warned=cause.is_warned))
    return sorted(found, key=lambda each: -each.share)

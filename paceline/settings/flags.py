"""What a command line, or a caller from Python, says of a run's settings: values from here on, not text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from paceline.core.errors import UsageError
from paceline.core.settings.slow import CLUSTERS
from paceline.settings.load_settings import merged, parse_sets


@dataclass(frozen=True, slots=True)
class Flags:
    """The settings that have a flag for themselves, and `sets`, which win over them. None and nothing: not said."""

    workers: int | None = None
    servers: int | None = None
    policy: str | None = None
    """A name, alone or with a value behind it, like ssp:3, or the path of a file."""
    epochs: int | None = None
    data: str | None = None
    """Path of the data set."""
    run: str | None = None
    preset: str | None = None
    sets: Sequence[str] | None = None
    """KEY=VALUE, the value as YAML."""
    slow: Sequence[str] | None = None
    """WHO=HOW, or the name of a cluster."""
    faults: Sequence[str] | None = None
    log: Sequence[str] | None = None
    """Loggers."""

    def with_sets(self, more: Sequence[str]) -> Self:
        """Returns the same flags with further settings on top."""
        return replace(self, sets=[*(self.sets or []), *more])

    def overrides(self, **named: Any) -> dict[str, Any]:
        """Returns the settings as `load` takes them, but for the preset; `named`: others, below `sets`. Raises UsageError where
        a text can't be read."""
        found = {
            "workers": self.workers,
            "servers": self.servers,
            "policy": self.policy,
            "epochs": self.epochs,
            "data": None if self.data is None else {"path": self.data},
            "run": self.run,
            "slow": _slow(self.slow or []) or None,
            "faults": list(self.faults or []) or None,
            "loggers": list(self.log or []) or None,
        }
        said = {key: value for key, value in found.items() if value is not None}
        return merged(merged(said, named), parse_sets(list(self.sets or [])))


def _slow(texts: Sequence[str]) -> str | Mapping[str, str]:
    """Returns how slow each worker is, by its number, or the name of a cluster."""
    if len(texts) == 1 and texts[0].lower() in CLUSTERS:
        return texts[0]

    found = [text.partition("=") for text in texts]
    for text, (who, equals, _) in zip(texts, found, strict=True):
        if not equals or "." in who:
            raise UsageError(
                f"--slow {text}: expected a worker's number (or 'all') and how slow, like 2=10x or all=10x@5%, or "
                f"only one of these names: {', '.join(CLUSTERS)}."
            )
    return {who: how for who, _, how in found}

"""From what the user names to the settings of a run with other numbers of workers and servers, or another policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from paceline.core.policies.policy import is_served
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config, read_launch
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load


class Start(NamedTuple):
    """What a probe begins a run with."""

    config: Config
    given: Mapping[str, Any] | None = None
    """Of a script: all that the user said, to which it adds its own."""


class Reader(Protocol):
    """Reads the settings of one way to run."""

    def __call__(self, workers: int | None, servers: int | None, policy: str | None) -> Config:
        """None: as the settings say. ConfigError: such a run can't be."""

    def start(self, workers: int) -> Start:
        """That many workers, and one server, under the run's own policy if it has servers."""

    def described(self, settings: Mapping[str, Any]) -> None:
        """What a script has told of its run, which lies below all that the user said."""


@dataclass(frozen=True)
class TaskReader:
    """Of a task or a YAML file."""

    what: str | None
    flags: Flags

    def __call__(self, workers: int | None, servers: int | None, policy: str | None) -> Config:
        return read_config(self.what, replace(self.flags, workers=workers, servers=servers, policy=policy))

    def start(self, workers: int) -> Start:
        policy = self(workers, None, None).policy
        return Start(self(workers, 1, None if is_served(policy) else "asp"))

    def described(self, settings: Mapping[str, Any]) -> None:
        return


@dataclass
class ScriptReader:
    """Of a training script."""

    script: str
    arguments: Sequence[str]
    flags: Flags
    _own: Mapping[str, Any] | None = field(default=None, init=False)
    """What it has told."""

    def __call__(self, workers: int | None, servers: int | None, policy: str | None) -> Config:
        config, given = self._read(workers, servers, policy)
        return config if self._own is None else load(None, given, self._own)

    def start(self, workers: int) -> Start:
        config, _ = self._read(workers, None, None)
        return Start(*self._read(workers, 1, None if is_served(config.policy) else "asp"))

    def described(self, settings: Mapping[str, Any]) -> None:
        self._own = settings

    def _read(self, workers: int | None, servers: int | None, policy: str | None) -> tuple[Config, dict[str, Any]]:
        flags = replace(self.flags, workers=workers, servers=servers, policy=policy)
        return read_launch(self.script, self.arguments, flags)

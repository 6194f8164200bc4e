"""What a worker or the evaluator begins with: its arguments, and the contents of the files that they name."""

from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from paceline.core.settings.config import Config
from paceline.rpc.auth import Credentials
from paceline.worker.command_line import ToldClient

T = TypeVar("T", bound=ToldClient)


@dataclass(frozen=True, slots=True)
class Start(Generic[T]):
    """A process's arguments, and the contents of the files that they name."""

    told: T
    config: Config
    credentials: Credentials

    @classmethod
    def read(cls, told: T) -> Self:
        """ConfigError, UsageError: a file or a setting can't be read."""
        return cls(told, told.load(), told.credentials())

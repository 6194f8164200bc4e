"""What a worker or the evaluator begins with: what it is told, and what the files named there say."""

from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from paceline.core.settings.config import Config
from paceline.rpc.auth import Credentials
from paceline.worker.command_line import ToldClient

T = TypeVar("T", bound=ToldClient)


@dataclass(frozen=True, slots=True)
class Start(Generic[T]):
    """What a process is told, and what the files named there say."""

    told: T
    config: Config
    credentials: Credentials

    @classmethod
    def read(cls, told: T) -> Self:
        """ConfigError, UsageError: a file or a setting can't be read."""
        return cls(told, told.load(), told.credentials())

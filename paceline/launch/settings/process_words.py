"""The command lines of workers and servers, on this machine and on those that join."""

from collections.abc import Mapping
from typing import Any

from paceline.server.command_line import ToldServer
from paceline.worker.command_line import ToldWorker


def worker_words(told: Mapping[str, Any]) -> list[str]:
    """Returns what follows `python -P` for a worker."""
    return ["-m", "paceline.worker", *ToldWorker(**told).arguments()]


def server_words(told: Mapping[str, Any]) -> list[str]:
    """Returns the same for a server."""
    return ["-m", "paceline.server", *ToldServer(**told).arguments()]

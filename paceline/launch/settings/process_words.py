"""The command line and environment of workers and servers, on this machine and on those that join."""

from collections.abc import Mapping
from typing import Any

from paceline.base.variables import CONNECT
from paceline.core.settings.config import Config
from paceline.server.command_line import ToldServer
from paceline.worker.command_line import ToldScript, ToldWorker


def worker_words(
    config: Config, told: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]]:
    """What follows `python -P` for a worker, or for the user's script as one, in which `paceline.connect()` finds the run
    through one variable; and what it sees of the environment."""
    if config.loop is None:
        return ["-m", "paceline.worker", *ToldWorker(**told).arguments()], environment
    return [config.loop], {**environment, CONNECT: ToldScript(**told).json_text()}


def server_words(told: Mapping[str, Any]) -> list[str]:
    """The same for a server."""
    return ["-m", "paceline.server", *ToldServer(**told).arguments()]

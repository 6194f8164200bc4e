"""The command lines of a run's workers and servers, on this machine and on those that join, and where they listen: what they
report, and that a process started again keeps its port."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.launch.supervise.children import Child
from paceline.server.command_line import ToldServer
from paceline.worker.command_line import ToldWorker


def worker_words(told: Mapping[str, Any]) -> list[str]:
    """Returns what follows `python -P` for a worker."""
    return ["-m", "paceline.worker", *ToldWorker(**told).arguments()]


def server_words(told: Mapping[str, Any]) -> list[str]:
    """Returns the same for a server."""
    return ["-m", "paceline.server", *ToldServer(**told).arguments()]


def ports_of(report: Path, pid: int | None) -> dict[str, int] | None:
    """What a server reported, once it is this process's report."""
    try:
        found: dict[str, int] = json.loads(report.read_text())
    except (OSError, ValueError):
        return None
    return found if found.get("pid") == pid else None


def kept_port(child: Child, ports: dict[str, int]) -> str:
    """The child's address; it keeps that port when it is started again."""
    child.arguments[child.arguments.index("--port") + 1] = str(ports["port"])
    return f"127.0.0.1:{ports['port']}"


def listening_at(server: Child, report: Path) -> str | None:
    """The address of a server on this machine, or on another one, once it listens."""
    if not server.is_here:
        return server.listens_at or None
    ports = ports_of(report, server.pid)
    return None if ports is None else kept_port(server, ports)

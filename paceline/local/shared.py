"""What the processes of a run share: the cores, what they are forked from, and how they say where they listen."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from paceline.core.errors import DataError
from paceline.core.settings.config import Config
from paceline.local.begin_early import libraries, modules
from paceline.local.children import Child, child_environment
from paceline.local.forker import SERVERS, Forker
from paceline.sharder.engine import build_engine
from paceline.sharder.strategy import build_strategy


@contextmanager
def forking(config: Config, begun: Forker | None = None) -> Iterator[Mapping[str, Forker]]:
    """What starts the processes of each role: what these import is loaded once for all. No sharder, of which there is one and
    whose BLAS may use all cores, unless its task imports torch and nothing clusters; nothing where fork is not safe.
    `begun`: what `beginning` gave."""
    with ExitStack() as stack:
        forkers: dict[str, Forker] = {}
        if sys.platform == "linux":
            environment = child_environment(threads_of(config))
            servers = workers = stack.enter_context(closing(Forker(SERVERS, environment)))
            if config.updates == "dense":
                workers = begun or stack.enter_context(
                    closing(Forker(modules(config.loop), environment, libraries(config.loop)))
                )
            forkers = {"server": servers, "worker": workers, "evaluator": workers, "check": workers}
            if (
                begun is workers
                and build_engine(config.data.engine).forks
                and not build_strategy(config.data.strategy).makes_clusters
            ):
                forkers["sharder"] = workers
        yield forkers


def how_read(shards: Path) -> tuple[str, ...]:
    """How the data of these shards was read, in lines for people; none where they can't be opened, which their readers tell."""
    from paceline.data.manifest import read_manifest

    try:
        return read_manifest(shards).as_read
    except DataError:
        return ()


def threads_of(config: Config) -> int:
    """Threads of each worker: its share of the cores."""
    return max(1, cores() // config.workers)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

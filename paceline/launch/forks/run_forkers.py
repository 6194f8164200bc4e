"""What the processes of a run are forked from; some of it may have begun before the config was read. And what several runs are
forked from."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from paceline.base.own_files import is_own
from paceline.core.settings.config import Config
from paceline.launch.forks.begin_early import Begun, three_forkers, workers_of
from paceline.launch.forks.forker import LINEAR, ROWS, SERVERS, SHARDER, Forker, Loads
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.processors import threads_of
from paceline.sharder.engine import build_engine
from paceline.sharder.strategy import build_strategy
from paceline.tasks.task import BUILTIN

RUNS = ("paceline.processes.exits", "paceline.settings.load_settings", "paceline.launch.supervise.launcher")
"""What a process that makes a run imports."""


@contextmanager
def forking(config: Config, begun: Begun | None = None) -> Iterator[Mapping[str, Forker]]:
    """What starts the processes of each role: what these import is loaded once for all. Nothing where fork is not safe.
    `begun`: what `beginning` gave."""
    if sys.platform != "linux":
        yield {}
        return
    with ExitStack() as stack:
        sharder, servers, workers = _begun_or_new(config, begun, stack)
        forkers = {"server": servers, "worker": workers, "evaluator": workers, "check": workers}
        reads = begun is not None and begun.workers is workers and begun.reads
        if (reads or not is_own(config.task)) and _shards_alone(config):
            forkers["sharder"] = workers if reads else sharder
        yield forkers


def _begun_or_new(config: Config, begun: Begun | None, stack: ExitStack) -> tuple[Forker, Forker, Forker]:
    """What the sharder, servers and workers are forked from. What was begun for other workers than the config asks for is left
    alone."""
    if begun is not None and begun.updates == config.updates:
        return begun.sharder, begun.servers, begun.workers
    environment, wanted = child_environment(threads_of(config)), _workers(config)
    if begun is None:
        rows = ROWS if config.updates == "sparse" else ()
        return stack.enter_context(three_forkers(environment, rows, wanted))
    return begun.sharder, begun.servers, stack.enter_context(closing(Forker(wanted, environment, begun.servers)))


def _workers(config: Config) -> Loads:
    """What its workers import."""
    if config.updates == "sparse":
        return Loads(LINEAR, ROWS)
    return workers_of(config.task if config.is_script else None)


@contextmanager
def forking_runs(config: Config) -> Iterator[Forker | None]:
    """What starts processes that each make a run like this one: what they import, and what the run's own processes do, is
    loaded once for all runs. None where fork is not safe."""
    if sys.platform != "linux":
        yield None
        return
    workers = _workers(config)
    task = () if is_own(config.task) else (f"{BUILTIN}.{config.task}",)
    loads = Loads((*RUNS, *SHARDER, *SERVERS, *workers.modules), (*task, *workers.libraries))
    with closing(Forker(loads, child_environment(1))) as one:
        yield one


def _shards_alone(config: Config) -> bool:
    """Whether the sharder may be forked: where it clusters, its BLAS may use all cores, and another engine starts processes.
    A user's file may do both; only one that imports torch is forked in any case."""
    return bool(build_engine(config.data.engine).forks) and not build_strategy(config.data.strategy).makes_clusters

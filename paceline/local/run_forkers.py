"""What the processes of a run are forked from, and what of it is begun before the config is read."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from paceline.core.settings.config import Config
from paceline.local.begin_early import libraries, modules
from paceline.local.child_environment import child_environment
from paceline.local.cpu_cores import threads_of
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
            script = config.task if config.is_script else config.loop
            servers = workers = stack.enter_context(closing(Forker(SERVERS, environment)))
            if config.updates == "dense":
                workers = begun or stack.enter_context(closing(Forker(modules(script), environment, libraries(script))))
            forkers = {"server": servers, "worker": workers, "evaluator": workers, "check": workers}
            if (
                begun is workers
                and build_engine(config.data.engine).forks
                and not build_strategy(config.data.strategy).makes_clusters
            ):
                forkers["sharder"] = workers
        yield forkers

"""What a simulation does not do: it refuses what would not be simulated as it is."""

from collections.abc import Callable, Iterable

from paceline.core.errors import ConfigError
from paceline.core.fault import faults_of
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.policies.policy import is_served
from paceline.core.settings.config import Config
from paceline.tasks import defaults
from paceline.tasks.task import load_task

Limit = tuple[Callable[[Config], bool], str]


def _sends_what_has_grown(config: Config) -> bool:
    return not is_served(config.policy) and "update" in build_peer_policy(config.policy).kinds


ALWAYS: tuple[Limit, ...] = (
    (lambda config: config.updates == "sparse", "a linear model over sparse rows (updates: sparse)"),
    (lambda config: config.data.source == "script", "a script with its own training loop (data.source: script)"),
    (lambda config: config.overlap, "a push during the next gradient (overlap)"),
    (lambda config: config.stopping is not None, "early stopping (stopping)"),
    (
        lambda config: any(fault.signals for fault in faults_of(config.faults)),
        "a process that is killed or frozen (faults)",
    ),
)
WITH_GRADIENTS: tuple[Limit, ...] = (
    (
        lambda config: config.codec.push.name != "none" or config.codec.pull.name != "none",
        "what a codec leaves out (codec)",
    ),
    (lambda config: config.precision != "float32", "lower precision (precision)"),
    (lambda config: config.accumulate > 1, "accumulated gradients (accumulate)"),
    (lambda config: config.data.access == "all", "workers that all read all the data (data.access: all)"),
    (lambda config: (config.data.shards or 0) > config.workers, "several shards for a worker (data.shards)"),
    (lambda config: bool(config.optimizer.model_dump().get("groups")), "groups of parameters (optimizer.groups)"),
    (lambda config: bool(config.optimizer.model_dump().get("maximize")), "climbing (optimizer.maximize)"),
)
WITHOUT_GRADIENTS: tuple[Limit, ...] = (
    (_sends_what_has_grown, "messages that depend on the gradients (policy), unless it computes these"),
)


def refuse_unlike(config: Config, with_gradients: bool, instead: str) -> None:
    """ConfigError where the run would not be simulated as it is. `instead`: a sentence on what to do."""
    _refuse(config, ALWAYS, instead)
    _refuse(config, WITH_GRADIENTS if with_gradients else WITHOUT_GRADIENTS, instead)
    if not with_gradients:
        return
    task = load_task(config.task, config.model)
    for part in ("loss", "metrics"):
        if not defaults.is_default(getattr(task, part)):
            raise ConfigError(
                f"A simulated run has the default loss (cross entropy) and accuracy, but task {config.task} has its own "
                f"{part}(). {instead}"
            )


def _refuse(config: Config, limits: Iterable[Limit], instead: str) -> None:
    for is_so, what in limits:
        if is_so(config):
            raise ConfigError(f"A simulated run can't have {what}. {instead}")

"""Pushes and pulls: what several causes ask of them, so that only one of these names them."""

from paceline.core.chief.advice import Advice
from paceline.core.chief.worker_time import OWN
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.laggards import laggards
from paceline.core.policies.policy import build_policy, push_batches
from paceline.core.settings.config import Config

LARGE = 1e6
"""Bytes from which on it is the size that costs time, not the number of messages."""
LATE = 0.05
"""Seconds of an exchange, however small, that no busy machine explains."""
MOST = 0.5
"""Share of the time outside of waiting that exchanges take at least where the mini-batches are too small."""
SMALL = 8
"""Examples of a worker's push up to which they are few: computing then takes hardly longer than for one."""
SERVICE = 0.005
"""CPU time of a server for a push above which it is their size that costs, not their number (seconds)."""


def is_of_one_link(evidence: Evidence) -> bool:
    """Whether some workers' exchanges take longer than the others'."""
    found = laggards(evidence)
    return found is not None and found.part == "exchange"


def are_of_few_examples(evidence: Evidence) -> bool:
    """Whether exchanges take more time than computing, and there are few examples behind each, and neither a link nor a push's
    size explains it. A script that draws its own mini-batches does not say how large they are."""
    config = evidence.config
    if config.is_script and config.batch_size == config.workers:
        return False
    is_large = evidence.busiest.service >= SERVICE or evidence.each("exchange") >= LATE
    exchange = evidence.share("exchange", within=OWN)
    return exchange >= MOST and examples(config) <= SMALL and not is_large and not is_of_one_link(evidence)


def examples(config: Config) -> int:
    """Behind each push of an equal worker."""
    return config.worker_batch * (push_batches(config) if config.updates == "sparse" else 1)


def fewer_bytes(evidence: Evidence, traffic: float) -> Advice:
    """How a run bears a slow network."""
    config = evidence.config
    if config.updates == "sparse":
        more = f"svm.batches={4 * push_batches(config)}"
        return Advice(f"{more}, which exchanges less often", (more,))
    is_plain = config.codec.push.name == "none" and build_policy(config.policy).pushes == "gradients"
    if traffic >= LARGE and is_plain:
        return Advice("codec.push=int8, which sends a quarter of the bytes", ("codec.push=int8",))
    if not config.servers:
        return Advice("a faster network, or a topology with fewer neighbours")
    return Advice("policy=local_sgd, which exchanges after several steps", ("policy=local_sgd",))

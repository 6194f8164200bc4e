"""Which peer policy and topology a config means, and what does not go with a run without servers."""

from paceline.core.coding.codec import codecs_that
from paceline.core.errors import ConfigError
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.topology import Topology, build_topology
from paceline.core.settings.config import Config, Options


def topology_of(config: Config) -> Topology:
    """The one that the config names, or else the policy's usual one; its options checked."""
    return build_topology(config.topology or Options(name=build_peer_policy(config.policy).usual_topology))


def check_peers(config: Config) -> None:
    """ConfigError where settings don't go with a run without servers."""
    policy, codec = build_peer_policy(config.policy), config.codec.push_codec
    topology_of(config).weights(tuple(range(config.workers)))
    if not policy.may_send(codec):
        raise ConfigError(
            f"codec.push is {codec.name}, but what workers of policy {config.policy.name} send one another can't travel so. "
            f"Use {codecs_that(policy.may_send)}."
        )
    options = config.optimizer.options
    translated = config.schedule.lr_scale == "auto"  # then each worker keeps both (core/steps/momentum.py)
    kept = () if translated else (options.get("momentum"), options.get("weight_decay"))
    if policy.plain and (config.optimizer.name != "sgd" or any(kept)):
        raise ConfigError(
            f"optimizer is {config.optimizer.name} {options}, but {config.policy.name} takes plain steps. Set "
            "optimizer.name=sgd, optimizer.momentum=0 and optimizer.weight_decay=0."
        )
    for key, seen, wanted in (
        ("codec.error_feedback", config.codec.error_feedback or None, None),
        ("codec.pull", None if config.codec.pull_codec.lossless else config.codec.pull.name, None),
        ("loop", config.loop, None),
        ("on_lost_worker", config.on_lost_worker, "shrink"),
    ):
        if seen != wanted:
            raise ConfigError(
                f"{key} is {seen}, which does not go with policy {config.policy.name}, that trains without servers. "
                f"{'Leave it out' if wanted is None else f'Set {key}={wanted}'}."
            )

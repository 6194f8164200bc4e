"""Which extensions a config names: policy, optimizer and codecs, and where there are no servers also the topology."""

from typing import Any

from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.topology import Topology, build_topology
from paceline.core.setting_rules.check_rules import always_chosen
from paceline.core.settings.config import Config, Options


def topology_of(config: Config) -> Topology:
    """The one that the config names, or else the policy's usual one; its options checked."""
    return build_topology(config.topology or Options(name=build_peer_policy(config.policy).usual_topology))


def chosen_by(config: Config) -> dict[str, Any]:
    """The extensions that the config names, by setting. Raises ConfigError if one does not exist, its options are wrong, or a
    topology can't link that many workers."""
    chosen = always_chosen(config)
    if chosen["policy"].served:
        return chosen
    topology = topology_of(config)
    topology.weights(tuple(range(config.workers)))
    return chosen | {"policy without servers": build_peer_policy(config.policy), "topology": topology}

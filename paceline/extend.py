"""What an extension of a user's needs: base classes and their values, from one place that keeps its names.

Policies, peer policies, codecs, optimizers, topologies, causes, strategies, tasks and loggers import from here; where the
names are defined may change with any release. Each is imported when it is first used, so a server that runs a policy loads no
reader of tables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.callback import Callback
    from paceline.core.chief.advice import Advice
    from paceline.core.codecs.codec import Buffer, Bytes, Codec, bytes_of, numbers_at
    from paceline.core.errors import BadPush, ConfigError, DataError, PacelineError
    from paceline.core.explain.cause import Cause, Finding
    from paceline.core.explain.evidence import Evidence
    from paceline.core.extension import SettingsRule
    from paceline.core.optimizers.optimizer import Optimizer
    from paceline.core.peers.peer_policy import Group, Kind, Message, PeerPolicy, Welcome
    from paceline.core.peers.topology import Members, Topology
    from paceline.core.policies.clocks import Clocks
    from paceline.core.policies.policy import Gathered, Own, Policy
    from paceline.core.values import Outcome, Places, Push, Update, Vector, Verdict
    from paceline.data.dataset import Dataset, Labelled
    from paceline.data.files import BUNDLED
    from paceline.data.svmlight import read_svmlight
    from paceline.data.table import read_like, read_table
    from paceline.sharder.strategy import Assignment, Cluster, ShardingStrategy

_HOME = {
    "Advice": "core.chief.advice",
    "Assignment": "sharder.strategy",
    "BUNDLED": "data.files",
    "BadPush": "core.errors",
    "Buffer": "core.codecs.codec",
    "Bytes": "core.codecs.codec",
    "Callback": "callback",
    "Cause": "core.explain.cause",
    "Clocks": "core.policies.clocks",
    "Cluster": "sharder.strategy",
    "Codec": "core.codecs.codec",
    "ConfigError": "core.errors",
    "DataError": "core.errors",
    "Dataset": "data.dataset",
    "Evidence": "core.explain.evidence",
    "Finding": "core.explain.cause",
    "Gathered": "core.policies.policy",
    "Group": "core.peers.peer_policy",
    "Kind": "core.peers.peer_policy",
    "Labelled": "data.dataset",
    "Members": "core.peers.topology",
    "Message": "core.peers.peer_policy",
    "Optimizer": "core.optimizers.optimizer",
    "Outcome": "core.values",
    "Own": "core.policies.policy",
    "PacelineError": "core.errors",
    "PeerPolicy": "core.peers.peer_policy",
    "Places": "core.values",
    "Policy": "core.policies.policy",
    "Push": "core.values",
    "SettingsRule": "core.extension",
    "ShardingStrategy": "sharder.strategy",
    "Topology": "core.peers.topology",
    "Update": "core.values",
    "Vector": "core.values",
    "Verdict": "core.values",
    "Welcome": "core.peers.peer_policy",
    "bytes_of": "core.codecs.codec",
    "numbers_at": "core.codecs.codec",
    "read_like": "data.table",
    "read_svmlight": "data.svmlight",
    "read_table": "data.table",
}
"""Where each name is defined, below `paceline`."""
__all__ = [
    "Advice",
    "Assignment",
    "BUNDLED",
    "BadPush",
    "Buffer",
    "Bytes",
    "Callback",
    "Cause",
    "Clocks",
    "Cluster",
    "Codec",
    "ConfigError",
    "DataError",
    "Dataset",
    "Evidence",
    "Finding",
    "Gathered",
    "Group",
    "Kind",
    "Labelled",
    "Members",
    "Message",
    "Optimizer",
    "Outcome",
    "Own",
    "PacelineError",
    "PeerPolicy",
    "Places",
    "Policy",
    "Push",
    "SettingsRule",
    "ShardingStrategy",
    "Topology",
    "Update",
    "Vector",
    "Verdict",
    "Welcome",
    "bytes_of",
    "numbers_at",
    "read_like",
    "read_svmlight",
    "read_table",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    from paceline.settings.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, _HOME)

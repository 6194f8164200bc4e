"""A short run of every policy in the folder over real processes: two servers, three workers, one of them slow."""

from pathlib import Path

import pytest

from paceline.core import registry
from paceline.core.policies.policy import PACKAGE
from tests.support.nights import some
from tests.support.processes import Cluster

SETTINGS = {"workers": 3, "epochs": 2, "batch_size": 16, "slow": {"2": "3x"}, "nominal_step": 0.002}
PLAIN = {"name": "sgd", "lr": 0.2, "momentum": 0.0, "weight_decay": 0.0}
UNTRAINED = 2.3026
"""ln 10: the loss of first weights of zero."""


@pytest.mark.parametrize("policy", some(registry.names(PACKAGE), ["easgd", "kbuffered"]))
def test_every_policy_trains_to_the_end_of_a_run(policy: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, policy={"name": policy}, optimizer=PLAIN, **SETTINGS) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        workers = [cluster.worker(rank) for rank in range(3)]
        cluster.ready()
        status = cluster.score()
        codes = [worker.wait() for worker in workers]
        cluster.end_servers(0)

        assert codes == [0, 0, 0]
        assert status.examples >= status.budget > 0
        losses = {worker.worker: worker.figures["loss"] for worker in status.workers}
        assert max(losses.values()) < UNTRAINED - 0.2, losses
        assert all(state.table["version"] > 0 for _, state in cluster.states())

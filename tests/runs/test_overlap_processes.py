"""Computation while a push is on its way, with real processes: nothing is lost or counted twice."""

import json
from pathlib import Path

from paceline.v1 import run_service_pb2 as pb
from tests.runs.test_processes import COUNTING, ENDLESS, assert_every_acknowledged_push_counts_once, goes_on, started
from tests.support.processes import Cluster


def test_changes_of_policy_while_workers_overlap_lose_no_push(tmp_path: Path) -> None:
    settings = {"policy": {"name": "asp"}, "optimizer": COUNTING, "epochs": ENDLESS, "overlap": True}
    with Cluster(tmp_path, **settings) as cluster:
        _, workers = started(cluster)

        for policy in ({"name": "ssp", "bound": 1}, {"name": "asp"}, {"name": "delay_threshold"}):
            cluster.chief.SetPolicy(pb.SetPolicyRequest(policy=json.dumps(policy)), timeout=10)
            wanted = policy["name"]
            cluster.until(lambda now, wanted=wanted: json.loads(now.policy)["name"] == wanted and not now.switching)
            goes_on(cluster)
        cluster.stop()
        codes = [worker.wait() for worker in workers]
        cluster.finish()

        assert codes == [0, 0]
        assert_every_acknowledged_push_counts_once(cluster, workers)

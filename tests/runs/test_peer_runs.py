"""Whole runs without servers: real workers, the chief and the evaluator, with deaths in between."""

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.core.settings.config import Config, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.v1 import run_service_pb2 as pb
from tests.support.nights import some
from tests.support.processes import TOKEN, Cluster, Process

peer = pytest.importorskip("paceline.worker.peers.peer_server")
replicas = pytest.importorskip("paceline.worker.training.model_and_gradient")
POLICIES = ("adpsgd", "allreduce", "broadcast", "dpsgd", "gosgd", "sgp")


def run(policy: str, workers: int, **more: Any) -> dict[str, Any]:
    """The settings of a run of digits."""
    plain = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    own = {"servers": 0, "workers": workers, "policy": {"name": policy}, "epochs": 3, "lease": 5, "optimizer": plain}
    return own | more


def started(cluster: Cluster) -> tuple[list[Process], Process]:
    """Workers that train, and the evaluator."""
    sharder, _ = cluster.sharder(), cluster.servers()
    assert sharder.wait() == 0
    workers = [cluster.worker(rank, torch=True) for rank in range(cluster.settings["workers"])]
    evaluator = cluster.evaluator()
    for worker in workers:
        worker.wait_for("training", founder=True)
    return workers, evaluator


def after(cluster: Cluster, steps: int) -> None:
    """Waits until every member has made this number of steps more."""
    before = {worker.worker: worker.clock for worker in cluster.until(lambda status: status.workers).workers}
    cluster.until(
        lambda status: all(one.clock >= before.get(one.worker, 0) + steps for one in status.workers if one.member)
    )


@pytest.mark.parametrize("policy", some(POLICIES, ["adpsgd"]))
def test_a_run_without_servers_trains_and_its_mean_is_what_is_scored(tmp_path: Path, policy: str) -> None:
    with Cluster(tmp_path, **run(policy, 3)) as cluster:
        workers, evaluator = started(cluster)
        status = cluster.until(lambda status: phase_of(status) == "finished")
        codes = [process.wait() for process in (*workers, evaluator)]
        cluster.end_servers(0)
    assert codes == [0, 0, 0, 0]
    assert status.scores[-1].metrics["local_models"] == 3
    assert status.scores[-1].metrics["test_accuracy"] > 0.75
    assert (tmp_path / "models" / "last.safetensors").exists()


def test_without_one_of_four_pairs_are_formed_anew_and_the_others_go_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, **run("adpsgd", 4, epochs=1000)) as cluster:
        workers, evaluator = started(cluster)
        after(cluster, 3)
        workers[1].kill()
        for worker in (workers[0], workers[2], workers[3]):
            assert worker.wait_for("the members are others")["left"] == ["worker-1"]
        after(cluster, 5)
        cluster.stop()
        status = cluster.until(lambda status: phase_of(status) == "finished")
        codes = [process.wait() for process in (workers[0], workers[2], workers[3], evaluator)]
    assert codes == [0, 0, 0, 0]
    assert status.scores[-1].metrics["local_models"] == 3
    assert np.isfinite(status.scores[-1].metrics["test_loss"])


@pytest.mark.parametrize("policy", some(["allreduce", "sgp"], ["allreduce"]))
def test_who_comes_back_to_a_lock_step_run_takes_over_the_present_model(tmp_path: Path, policy: str) -> None:
    with Cluster(tmp_path, **run(policy, 3, epochs=1000)) as cluster:
        workers, evaluator = started(cluster)
        after(cluster, 3)
        workers[2].kill()
        again = cluster.worker(2, torch=True)
        begun = again.wait_for("training")
        after(cluster, 5)
        evaluator.send(signal.SIGSTOP)  # before the end, or it might have scored before it stands still
        cluster.stop()
        cluster.until(lambda status: phase_of(status) == "scoring")
        first, models = final_models(cluster)
        evaluator.send(signal.SIGCONT)
        codes = [process.wait() for process in (workers[0], workers[1], again, evaluator)]
    assert begun["founder"] is False
    assert begun["clock"] > 0
    assert codes == [0, 0, 0, 0]
    assert len(models) == 3
    spread = max(float(np.abs(model - models[0]).max()) for model in models)
    assert spread < 0.5 * float(np.abs(models[0] - first).max())


def final_models(cluster: Cluster) -> tuple[Any, list[Any]]:
    """The model that all begin with, and the local models that wait to be scored."""
    from paceline.tasks.task import load_task

    replica, found = replicas.Replica(load_task("digits"), "cpu", Config().seed), []
    plan = make_plan(replica.shapes, 0, PlanConfig())
    for address in cluster.chief.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL, number=1), timeout=30).peers:
        target = np.zeros(plan.total, np.float32)
        peer.pull_local(address, Credentials(TOKEN), "lane", plan, "test", target, 60.0, threading.Event())
        found.append(target)
    return replica.local, found


def test_a_chief_that_is_started_again_goes_on_counting(tmp_path: Path) -> None:
    with Cluster(tmp_path, **run("allreduce", 2, epochs=1000, lease=20)) as cluster:
        _, evaluator = started(cluster)
        after(cluster, 3)
        chief = next(process for process in cluster.processes if process.name == "server-0")
        chief.kill()
        cluster.listening(0, cluster.server(0))
        after(cluster, 8)
        status = cluster.until(lambda status: len([worker for worker in status.workers if worker.member]) == 2)
        cluster.stop()
        cluster.until(lambda status: phase_of(status) == "finished")
        assert evaluator.wait() == 0
    assert all(worker.figures["dropped"] <= 2 for worker in status.workers)


@pytest.mark.nightly  # 20 s of waiting; by day worker/peers/test_other_workers.py does it in one process
def test_where_all_workers_have_died_the_run_ends_with_the_reason(tmp_path: Path) -> None:
    with Cluster(tmp_path, **run("gosgd", 2, epochs=1000)) as cluster:
        workers, _ = started(cluster)
        after(cluster, 3)
        for worker in workers:
            worker.kill()
        cluster.until(lambda status: not any(worker.member for worker in status.workers))  # their leases have lapsed
        again = [cluster.worker(rank, torch=True) for rank in range(2)]
        codes = [process.wait() for process in again]
        texts = [process.text() for process in again]
    assert codes == [DataError.exit_code, DataError.exit_code]
    assert all("All workers that had the run's model are gone" in text for text in texts)

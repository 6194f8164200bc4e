"""Local models for others to read: copied between two steps, served by each worker, gathered by the evaluator."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from paceline.core.chief.run import Run
from paceline.core.errors import PlanMismatch, Stopped, TryAgain, Unauthenticated
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Config, Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.rpc.auth import HEADER, Credentials, held
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.tasks.task import load_task
from paceline.v1 import peer_service_pb2 as peer_pb
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.peer_service_pb2_grpc import PeerServiceStub
from paceline.v1.settings_pb2 import Policy
from paceline.worker.surroundings import Surroundings
from tests.support.in_process import SHAPES, Said
from tests.support.ports import own_port
from tests.support.processes import TOKEN, Cluster, Process, eventually
from tests.support.threads import none_left

peer = pytest.importorskip("paceline.worker.peers.peer_server")
replicas = pytest.importorskip("paceline.worker.training.model_and_gradient")
local_models = pytest.importorskip("paceline.worker.scoring.mean_and_vote")
PLAN = make_plan(SHAPES, 2, PlanConfig())
MODEL = np.arange(PLAN.total, dtype=np.float32)


class Peers:
    """Workers' servers on one transport, and a reader of theirs."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.made = list[Any]()

    def serving(self, values: Vector | None = MODEL, plan: Any = PLAN) -> tuple[Any, str]:
        """A worker's server in parts of 8 elements, whose model is final where there are values; and its address."""
        server = peer.PeerServer(plan, 32, Credentials(TOKEN), own_port(), self.kind)
        self.made.append(server)
        if values is not None:
            server.model.finish(values)
        return server, f"127.0.0.1:{server.port}"

    def pulled(
        self, address: str, token: str = TOKEN, patience: float = 60.0, stop: threading.Event | None = None
    ) -> Vector:
        target, stop = np.zeros(PLAN.total, np.float32), stop or threading.Event()
        peer.pull_local(address, Credentials(token), self.kind, PLAN, "evaluator", target, patience, stop)
        return target


@pytest.fixture
def peers(kind: str) -> Iterator[Peers]:
    """Closed at the end."""
    made = Peers(kind)
    yield made
    for one in made.made:
        one.close()


# the copy
def test_a_reader_gets_the_model_as_it_is_at_the_end_of_the_step_and_not_later() -> None:
    model, local = peer.LocalModel(), np.ones(4, np.float32)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(model.read, 60.0)
        eventually(lambda: model.offer(local) or reading.done(), "a copy")
        local += 1
        assert reading.result().tolist() == [1.0] * 4


def test_nothing_is_copied_while_nobody_asks() -> None:
    class Untouchable:
        def copy(self) -> None:
            raise AssertionError("copied for nobody")

    model = peer.LocalModel()
    model.offer(Untouchable())
    assert model.read(0.0) is None
    with pytest.raises(AssertionError, match="copied for nobody"):
        model.offer(Untouchable())  # the question of the reader who gave up


def test_the_final_model_is_read_without_a_copy_also_by_those_who_wait_for_it() -> None:
    model, local = peer.LocalModel(), np.ones(4, np.float32)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(model.read, 60.0)
        model.finish(local)
        assert waiting.result() is local
    assert model.read(0.0) is local


# the service
def test_a_local_model_travels_whole_in_parts(peers: Peers) -> None:
    _, address = peers.serving()
    assert peers.pulled(address).tolist() == MODEL.tolist()


def test_a_workers_server_that_is_closed_leaves_no_thread(kind: str) -> None:
    with none_left():
        peers = Peers(kind)
        server, address = peers.serving()
        assert peers.pulled(address).tolist() == MODEL.tolist()
        server.close()


def test_a_stock_client_reads_a_local_model_by_generated_stubs(peers: Peers) -> None:
    _, address = peers.serving()
    request = peer_pb.PullLocalRequest(reader="stock", plan_hash=PLAN.hash)
    with grpc.insecure_channel(address) as channel:
        metadata = [(HEADER, held(Credentials(TOKEN)).shown())]
        parts = list(PeerServiceStub(channel).PullLocal(request, metadata=metadata, timeout=60))
    assert parts[0].head.elements == PLAN.total
    assert b"".join(part.data for part in parts) == MODEL.tobytes()


def test_a_model_that_changes_all_the_time_is_never_torn(peers: Peers) -> None:
    server, address = peers.serving(None)
    local, over = np.zeros(PLAN.total, np.float32), threading.Event()

    def train() -> None:
        while not over.is_set():
            for element in range(len(local)):
                local[element] += 1
            server.model.offer(local)

    with ThreadPoolExecutor(1) as threads:
        training = threads.submit(train)
        try:
            seen = [peers.pulled(address) for _ in range(10)]
        finally:
            over.set()
        training.result()
    assert all((one == one[0]).all() for one in seen)
    assert seen[-1][0] > seen[0][0] > 0


def test_a_reader_with_another_model_or_without_the_token_is_refused(peers: Peers) -> None:
    _, address = peers.serving(plan=make_plan(SHAPES[:2], 2, PlanConfig()))
    with pytest.raises(PlanMismatch, match="evaluator has another plan"):
        peers.pulled(address)
    with pytest.raises(Unauthenticated):
        peers.pulled(address, "another-random-word")


def test_a_worker_that_is_gone_or_does_not_end_its_step_is_given_up(peers: Peers) -> None:
    gone, nobody = peers.serving()
    gone.close()
    _, stuck = peers.serving(None)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(TryAgain):
        peers.pulled(nobody)
    with pytest.raises(TryAgain, match="did not finish its step within 0 s"):
        peers.pulled(stuck, patience=0.0)
    with pytest.raises(Stopped):
        peers.pulled(stuck, stop=stopped)


# the chief
def test_the_chief_names_members_and_those_who_have_finished_in_worker_order_also_after_its_restart() -> None:
    config = Config(workers=12, policy=Options(name="ensemble"))
    run, clocks, facts = Run(config), Clocks(), (100, 10, "digest", 0.0)
    run.ready(0.0)
    names = [f"worker-{rank}" for rank in (10, 2, 1, 0, *range(3, 10), 11)]
    incarnations = {name: run.join(name, False, *facts, f"host:{name[7:]}") for name in names}
    assert run.workers.local_models == []
    for name in names:
        run.seat(name, incarnations[name], 0, lambda: clocks, 0.0)
    assert run.workers.local_models == [f"host:{rank}" for rank in range(12)]

    run.leave("worker-0", incarnations["worker-0"], True, 1.0)
    run.leave("worker-1", incarnations["worker-1"], False, 1.0)
    again = Run(config)
    again.restore(run.state(), 2.0)

    assert run.workers.local_models == again.workers.local_models == [f"host:{rank}" for rank in (0, *range(2, 12))]


def test_a_worker_without_a_peer_service_is_not_named() -> None:
    run = Run(Config(workers=1))
    run.ready(0.0)
    run.seat("old", run.join("old", False, 100, 10, "digest", 0.0), 0, Clocks, 0.0)
    assert run.workers.local_models == []


# mean and vote
class Linear:
    """A replica whose outputs are given; one mini-batch."""

    name = "linear"
    metrics_are_means = False

    def __init__(self, *outputs: Any, labels: Any) -> None:
        import torch

        self.queue = [torch.tensor(one, dtype=torch.float32) for one in outputs]
        self.labels = torch.tensor(labels)
        self.task = self

    def outputs(self, features: Any, labels: Any) -> Iterator[Any]:
        yield self.queue.pop(0), self.labels

    def metrics(self, outputs: Any, labels: Any) -> dict[str, float]:
        self.probabilities = outputs.exp().numpy()
        return {"accuracy": float((outputs.argmax(-1) == labels).double().mean())}


def voted(*outputs: Any, labels: Any) -> tuple[Any, dict[str, dict[str, float]]]:
    replica = Linear(*outputs, labels=labels)
    vote = local_models.Vote(replica, {"test": (None, None)})
    for _ in outputs:
        vote.add()
    return replica, vote.scores()


def test_the_vote_is_the_mean_of_probabilities_not_of_scores() -> None:
    ln = np.log
    sure, unsure = [[ln(0.9), ln(0.1)], [ln(0.9), ln(0.1)]], [[ln(0.2), ln(0.8)], [ln(0.05), ln(0.95)]]
    replica, scores = voted(sure, unsure, labels=[0, 0])
    assert replica.probabilities == pytest.approx(np.array([[0.55, 0.45], [0.475, 0.525]]))
    assert scores == {"test": {"accuracy": 0.5}}


@pytest.mark.parametrize(
    ("outputs", "labels"), [([[0.3], [0.4]], [0, 1]), ([[0.3, 0.4]], [[0.5, 0.5]]), ([0.3, 0.4], [0, 1])]
)
def test_outputs_that_are_no_class_scores_have_no_vote(outputs: Any, labels: Any) -> None:
    assert voted(outputs, outputs, labels=labels)[1] == {}


def test_labels_for_each_place_in_a_sequence_are_voted_on_too() -> None:
    _, scores = voted([[[2.0, 0.0], [0.0, 2.0]]], labels=[[0, 0]])
    assert scores == {"test": {"accuracy": 0.5}}


def test_the_mean_is_of_those_that_came_and_a_gone_or_diverged_worker_is_left_out(peers: Peers) -> None:
    replica, said, seen = replicas.Replica(load_task("digits"), "cpu"), Said(), []
    plan, length = make_plan(replica.shapes, 1, PlanConfig()), replica.length
    models = [np.full(length, value, np.float32) for value in (1.0, 2.0, np.nan, 6.0)]
    served = [peers.serving(model, plan) for model in models]
    served[1][0].close()
    data = {"train": (np.zeros((4, 64), np.uint8), np.arange(4))}
    config = Config(transport=peers.kind, stall_timeout=60.0)
    around = Surroundings(config=config, name="evaluator", addresses=[], credentials=Credentials(TOKEN), say=said)
    gathering = local_models.LocalModels(around, replica, plan)

    found = gathering.gather(
        [address for _, address in served], data, True, lambda number: seen.append((number, replica.local[0]))
    )
    nothing = gathering.gather([served[1][1]], data, True, lambda number: None)

    assert found.count == 2
    assert found.mean.tolist() == [3.5] * length
    assert seen == [(0, 1.0), (3, 6.0)]
    left_out = [facts["address"] for event, facts in said if "left out" in event]
    assert left_out == [served[number][1] for number in (1, 2, 1)]
    assert found.vote.keys() == {"train"}
    assert nothing is None


# whole runs
def started(cluster: Cluster) -> tuple[list[Process], Process]:
    """Real workers and evaluator, that train and have scored something."""
    sharder, _ = cluster.sharder(), cluster.servers()
    assert sharder.wait() == 0
    evaluator = cluster.evaluator()
    workers = [cluster.worker(rank, torch=True) for rank in range(cluster.settings["workers"])]
    cluster.until(lambda status: len(status.scores) >= 1 and status.version > 20)
    return workers, evaluator


def endless(policy: str, workers: int) -> dict[str, Any]:
    more = {"policy": {"name": policy}, "epochs": 100_000, "workers": workers, "heartbeat": 0.3}
    rest = {"schedule": {}, "batch": "global", "checkpoint": {"every": 60}}
    return {**load_task("digits").settings, **more, **rest}


def flat(path: Path) -> Vector:
    """The model in a file as one vector."""
    tensors = load_file(path)
    return np.concatenate([tensors[name].ravel() for name in ("0.weight", "0.bias", "2.weight", "2.bias")])


def test_final_local_models_are_served_until_they_are_scored_and_a_killed_worker_is_left_out(tmp_path: Path) -> None:
    with Cluster(tmp_path, **endless("ensemble", 3)) as cluster:
        workers, evaluator = started(cluster)

        eventually(lambda: evaluator.events("scored", local_models=3), evaluator.text)
        evaluator.send(signal.SIGSTOP)
        cluster.stop()
        cluster.until(lambda status: phase_of(status) == "scoring")
        for worker in workers:
            worker.wait_for("serving the local model until the run is scored")
        peers = list(cluster.chief.Evaluate(pb.EvaluateRequest(protocol=PROTOCOL, number=1), timeout=30).peers)
        plan = make_plan(replicas.Replica(load_task("digits"), "cpu").shapes, 2, PlanConfig())
        final = [np.zeros(plan.total, np.float32) for _ in peers]
        for address, target in zip(peers, final, strict=True):
            peer.pull_local(address, Credentials(TOKEN), "lane", plan, "test", target, 60.0, threading.Event())
        workers[1].kill()
        evaluator.send(signal.SIGCONT)
        codes = [process.wait() for process in (workers[0], workers[2], evaluator)]
        status = cluster.until(lambda status: phase_of(status) == "finished")
        cluster.end_servers(0)

        assert codes == [0, 0, 0]
        # by the last scoring, and by one before it where the evaluator was stopped in the midst of that
        assert {entry["address"] for entry in evaluator.events("a worker's local model is left out")} == {peers[1]}
        metrics = status.scores[-1].metrics
        assert status.scores[-1].final
        assert metrics["local_models"] == 2
        kinds, splits = ("", "mean_", "vote_"), ("train", "validation", "test")
        assert {f"{kind}{split}_accuracy" for kind in kinds for split in splits} <= set(metrics)
        assert "vote_test_loss" not in metrics
        models = tmp_path / "models"
        kept = {path.name for path in models.glob("last*")}
        assert kept == {f"last{which}.safetensors" for which in ("", ".local-0", ".local-2")}
        assert (flat(models / "last.local-0.safetensors") == final[0]).all()
        assert (flat(models / "last.local-2.safetensors") == final[2]).all()
        assert not (final[0] == final[2]).all()
        assert (flat(models / "last.safetensors") == (final[0] + final[2]) / np.float32(2)).all()
        with safe_open(models / "last.safetensors", "numpy") as file:
            assert file.metadata()["model"] == "mean"


def test_evaluator_and_workers_follow_a_change_to_a_policy_whose_local_models_count(tmp_path: Path) -> None:
    with Cluster(tmp_path, **endless("asp", 2)) as cluster:
        workers, evaluator = started(cluster)

        before = set(cluster.until(lambda status: True).scores[-1].metrics)
        cluster.chief.SetPolicy(pb.SetPolicyRequest(policy=Policy(name="ensemble")), timeout=10)
        cluster.until(lambda status: "vote_test_accuracy" in status.scores[-1].metrics and not status.switching)
        cluster.stop()
        codes = [process.wait() for process in (*workers, evaluator)]
        status = cluster.until(lambda status: phase_of(status) == "finished")
        cluster.end_servers(0)

        assert codes == [0, 0, 0]
        assert not any(name.startswith(("mean", "vote", "local")) for name in before)
        assert status.scores[-1].metrics["local_models"] == 2

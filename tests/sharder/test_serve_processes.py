"""Whole runs whose shards come from `python -m paceline.sharder serve`, and what that process says and ends with."""

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from paceline.rpc.channel import open_channel
from paceline.rpc.enums import phase_of
from tests.support.ports import own_port
from tests.support.processes import TOKEN, Cluster, Process, eventually

SPARSE = {
    "task": "svm",
    "updates": "sparse",
    "schedule": {"lr_scale": "none"},
    "policy": {"name": "asp"},
    "epochs": 4,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.0, "weight_decay": 0.0},
    "svm": {"objective": {"reg": "hogwild", "lam": 0.1}},
}


def serve(cluster: Cluster, name: str, *more: Any) -> Process:
    """A process that is to serve the cluster's shards."""
    words = ("-m", "paceline.sharder", "serve", "--config", cluster.config, "--out", cluster.shards)
    return cluster.start(name, *words, *more)


def serving(cluster: Cluster, *more: Any) -> tuple[Process, dict[str, int]]:
    """The process that serves the cluster's shards, once it does, and its ports."""
    report = cluster.folder / "sharder.json"
    report.unlink(missing_ok=True)
    process = serve(cluster, "sharder", "--token-file", cluster.token, "--report", report, *more)
    eventually(lambda: report.exists() or not process.is_running, process.text)
    assert report.exists(), process.text()
    return process, json.loads(report.read_text())


def reading(cluster: Cluster, name: str, port: int) -> list[Any]:
    """Options of a process that keeps its copies in its own folder."""
    return ["--shards", cluster.folder / name, "--shard-server", f"localhost:{port}"]


def libsvm(rows: int, columns: int) -> str:
    """Examples that a plane separates."""
    rng = np.random.default_rng(0)
    features = (rng.random((rows, columns)) < 0.2) * rng.random((rows, columns))
    signs = np.where(features @ rng.normal(size=columns) > 0, 1, -1)
    lines = (
        " ".join([f"{sign:+d}", *(f"{k + 1}:{row[k]:.4f}" for k in np.flatnonzero(row))])
        for sign, row in zip(signs, features, strict=True)
    )
    return "\n".join(lines) + "\n"


def copied(cluster: Cluster, name: str) -> list[str]:
    return sorted(path.name for path in (cluster.folder / name).iterdir())


def test_a_dense_run_fetches_each_worker_its_shard_and_trains(tmp_path: Path) -> None:
    with Cluster(tmp_path, epochs=3, data={"source": "server"}) as cluster:
        (server, ports), _ = serving(cluster), cluster.servers()
        workers = [cluster.worker(rank, *reading(cluster, f"w{rank}", ports["port"])) for rank in (0, 1)]
        cluster.ready()
        status = cluster.score()
        assert [worker.wait() for worker in workers] == [0, 0]
        cluster.end_servers(0)
        with urllib.request.urlopen(f"http://localhost:{ports['metrics_port']}/metrics") as answer:
            page = answer.read().decode()
        server.send(signal.SIGTERM)

        assert server.wait() == 143
        assert status.examples >= status.budget > 0
        assert (copied(cluster, "w0"), copied(cluster, "w1")) == (["shard-0"], ["shard-1"])
    sent = re.search(r"paceline_sharder_sent_bytes_total\S* ([0-9.e+]+)", page)
    assert float(sent[1]) > sum(
        file.stat().st_size for name in ("w0", "w1") for file in (tmp_path / name).rglob("*.npy")
    )
    assert re.search(r'paceline_shard_examples\{.*shard="1".*\} 6', page)


def test_a_sparse_run_fetches_no_shard_but_its_own_though_it_counts_all(tmp_path: Path) -> None:
    (tmp_path / "made.svm").write_text(libsvm(400, 30))
    data = {"source": "server", "path": "made.svm", "validation": 0.15, "leases": False}
    with Cluster(tmp_path, data=data, **SPARSE) as cluster:
        (server, ports), _ = serving(cluster), cluster.servers()
        others = [cluster.evaluator(*reading(cluster, "evaluator", ports["port"]))]
        others += [cluster.worker(rank, *reading(cluster, f"w{rank}", ports["port"]), torch=True) for rank in (0, 1)]
        assert [process.wait() for process in others] == [0, 0, 0]
        status = cluster.until(lambda status: phase_of(status) == "finished")
        cluster.end_servers(0)
        server.send(signal.SIGINT)

        assert server.wait() == 130
        assert status.scores[-1].metrics["test_accuracy"] > 0.8
        assert (copied(cluster, "w0"), copied(cluster, "w1")) == ([".ids", "shard-0"], [".ids", "shard-1"])
        assert copied(cluster, "evaluator") == ["test", "validation"]


def test_shards_that_are_there_are_served_again_and_others_are_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, data={"source": "server"}) as cluster:
        first, ports = serving(cluster, "--port", own_port())
        health = health_pb2_grpc.HealthStub(open_channel(f"localhost:{ports['health_port']}"))
        ready = health.Check(health_pb2.HealthCheckRequest(), timeout=10).status
        first.kill()
        before = (cluster.shards / "manifest.json").stat().st_mtime_ns
        second, _ = serving(cluster, "--port", ports["port"])
        other = serve(cluster, "other", "--set", "seed=5")
        taken = serve(cluster, "taken", "--port", ports["port"])

        assert ready == health_pb2.HealthCheckResponse.SERVING
        assert (cluster.shards / "manifest.json").stat().st_mtime_ns == before
        assert (other.wait(), "seed was 0 and is now 5" in other.text()) == (65, True)
        assert (taken.wait(), f"Can't listen on gRPC port {ports['port']}" in taken.text()) == (78, True)
        assert second.is_running


SLOW = """
import time

def data(path):
    print("reading", flush=True)
    time.sleep(1000)

def model():
    return None
"""


def test_a_server_that_is_stopped_while_it_writes_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with Cluster(tmp_path, task=str(tmp_path / "slow.py"), data={"source": "server"}) as cluster:
        process = cluster.start(
            "sharder", "-m", "paceline.sharder", "serve", "--config", cluster.config, "--out", cluster.shards
        )
        eventually(lambda: "reading" in process.text(), process.text)
        process.send(signal.SIGTERM)

        assert process.wait() == 143
        assert "got a signal to stop" in process.text()
        assert not cluster.shards.exists()


def test_a_worker_and_an_evaluator_say_what_is_wrong_with_their_shard_server(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1, data={"source": "server"}, deadline=1) as cluster:
        _, ports = serving(cluster)
        cluster.servers()
        (tmp_path / "wrong").write_text(TOKEN[::-1])
        mine = reading(cluster, "copies", ports["port"])
        processes = {
            "token": cluster.worker(0, *mine, "--token-file", tmp_path / "wrong"),
            "none": cluster.worker(1, "--shards", tmp_path / "copies"),
            "gone": cluster.worker(2, *reading(cluster, "gone", 1)),
            "place": cluster.worker(3, *reading(cluster, "config.yaml", ports["port"])),
        }
        codes = {name: process.wait() for name, process in processes.items()}

        assert codes == {"token": 78, "none": 78, "gone": 69, "place": 73}
        assert "Unauthenticated: The call's token is of another run" in processes["token"].text()
        assert "you gave no --shard-server" in processes["none"].text()
        assert "the shard server at localhost:1 did not answer in time" in processes["gone"].text()
        assert "Can't write a copy of the shards" in processes["place"].text()

"""Metrics: the promised ones exist in live processes, are named alike, and stay few."""

from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

import pytest
from in_process import LENGTH, Cluster, Pusher, config_of
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from paceline.core.errors import ConfigError, error_classes
from paceline.rpc.process import serve_metrics
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from server.metrics import ServerMetrics

SERVER = [
    "updates_total", "version", "pushes_rejected_total", "handle_seconds", "requests_total",
    "received_bytes_total", "sent_bytes_total", "queue_depth", "queue_seconds", "fold_seconds", "staleness",
    "wait_seconds", "slice_bytes", "optimizer_bytes", "members", "member_seen_timestamp_seconds",
    "checkpoint_timestamp_seconds", "checkpoint_seconds", "checkpoint_failures_total", "recoveries_total",
]  # fmt: skip
WORKER = ["examples_total", "steps_total", "step_seconds", "alpha_ratio", "staleness", "loss", "epoch", "retries_total"]
METHODS = [
    method.name
    for service in (
        pb.DESCRIPTOR.services_by_name["ParameterService"],
        run_pb.DESCRIPTOR.services_by_name["RunService"],
    )
    for method in service.methods
]
UNITS = ("_seconds", "_bytes", "_ratio", "_total")
PLAIN = {
    "version",
    "staleness",
    "members",
    "queue_depth",
    "minor_faults",
    "plain_text",
    "loss",
    "epoch",
    "learning_rate",
}
"""Numbers that have no unit."""


def series(registry: CollectorRegistry) -> int:
    samples = (sample.name for family in registry.collect() for sample in family.samples)
    return sum(not name.endswith("_created") for name in samples)  # the processes switch those off


def names(registry: CollectorRegistry) -> set[str]:
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
    }  # fmt: skip


def badly_named(registry: CollectorRegistry, process: str) -> Iterable[str]:
    prefix = f"paceline_{process}_"
    for name in names(registry):
        if not name.startswith(prefix) or not (name.endswith(UNITS) or name.removeprefix(prefix) in PLAIN):
            yield name


def test_a_server_with_64_workers_has_at_most_250_series() -> None:
    registry = CollectorRegistry()
    metrics = ServerMetrics(registry, "ssp")
    for index in range(64):
        metrics.saw(f"worker-{index}")
    metrics.follow([f"worker-{index}" for index in range(64)])
    for method in [*METHODS, "ServerReflectionInfo"]:
        metrics.call(method, "OK", 0.1)
        metrics.call(method, "UNAVAILABLE", 0.1)
    for reason in ["stale_term", "old_version", *error_classes()]:
        metrics.rejected.labels(reason).inc()
    assert series(registry) <= 250


def test_workers_that_come_and_go_do_not_pile_up() -> None:
    registry = CollectorRegistry()
    metrics = ServerMetrics(registry, "asp")
    for number in range(100):
        metrics.follow([f"worker-{number}"])
        metrics.saw(f"worker-{number}")
    metrics.follow([])
    (family,) = [family for family in registry.collect() if "member_seen" in family.name]
    assert family.samples == []


def test_a_live_server_has_every_promised_metric_in_use(tmp_path: Path) -> None:
    cluster = Cluster(config_of("asp", workers=1, epochs=100), tmp_path)
    cluster.evaluator_ready()
    pusher = Pusher(cluster).join().sit()
    pusher.push(1.0)
    registry = cluster.servers[0].registry
    assert {f"paceline_server_{name}" for name in SERVER} <= names(registry)
    assert list(badly_named(registry, "server")) == []
    assert cluster.metric("updates_total", policy="asp") == 1
    assert cluster.metric("slice_bytes") == 4 * LENGTH
    assert cluster.metric("received_bytes_total") == 2 * 4 * LENGTH  # the first weights, and a push
    assert cluster.metric("sent_bytes_total") == 2 * 4 * LENGTH  # a pull, and a reply
    assert cluster.metric("members") == 1
    assert cluster.metric("queue_depth") == 0
    for histogram in ("queue_seconds", "fold_seconds", "wait_seconds", "staleness", "checkpoint_seconds"):
        assert cluster.metric(f"{histogram}_count") >= 1, histogram
    assert cluster.metric("member_seen_timestamp_seconds", worker="worker-0") > 0
    assert cluster.metric("requests_total", method="Resume", code="OK") == 1
    assert series(registry) <= 250
    cluster.restart(0)
    assert cluster.metric("recoveries_total") == 1
    cluster.close()


def test_a_worker_has_at_most_120_series_all_well_named() -> None:
    progress_module = pytest.importorskip("worker.progress")
    replica_module = pytest.importorskip("worker.replica")
    registry = CollectorRegistry()
    progress = progress_module.Progress(registry)
    for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE"):
        progress.retried(code)
    for phase in ("waiting", "data", "compute", "exchange", "data"):
        progress.enter(phase)
    step = replica_module.Step(None, 0.5, 32, True)
    progress.stepped(1, 0, step, [pb.PullHead(staleness=3, waited=0.1)], 0.25)
    assert {f"paceline_worker_{name}" for name in WORKER} <= names(registry)
    assert list(badly_named(registry, "worker")) == []
    assert series(registry) <= 120
    assert registry.get_sample_value("paceline_worker_retries_total", {"code": "UNAVAILABLE"}) == 1


def test_the_evaluator_tells_loss_and_accuracy_of_each_split() -> None:
    scoring = pytest.importorskip("worker.scoring")
    registry = CollectorRegistry()
    metrics = scoring.ScoreMetrics(registry)
    metrics.note(3, 1.5, {"train": {"loss": 0.5, "accuracy": 0.9}, "test": {"loss": 0.7, "accuracy": 0.8}})
    assert registry.get_sample_value("paceline_eval_accuracy_ratio", {"split": "test"}) == 0.8
    assert registry.get_sample_value("paceline_eval_loss", {"split": "train"}) == 0.5
    assert list(badly_named(registry, "eval")) == []


def test_metrics_are_served_on_a_port_of_their_own() -> None:
    registry = CollectorRegistry()
    ServerMetrics(registry, "bsp").saw("worker-0")
    port = serve_metrics(0, registry)
    with urlopen(f"http://localhost:{port}/metrics") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    assert "paceline_server_updates" in {family.name for family in families}
    assert not [family.name for family in families if family.name.endswith("_created")]
    with pytest.raises(ConfigError, match=f"metrics port {port}"):
        serve_metrics(port, registry)

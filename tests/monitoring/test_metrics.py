"""Metrics: the promised ones exist in live processes, are named alike, and stay few."""

import math
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.warnings import Kind
from paceline.core.errors import (
    Behind,
    ConfigError,
    Diverged,
    Incomplete,
    NoData,
    OutOfMemory,
    ScriptFailed,
    UsageError,
    error_classes,
)
from paceline.rpc.process import serve_metrics, start_metrics
from paceline.server.metrics import ServerMetrics
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from tests.support.in_process import LENGTH, Cluster, Pusher, config_of
from tests.support.own_time import own_time

SERVER = ["version", "pushes_capped_total", "queue_seconds", "checkpoint_seconds"]
WORKER = ["staleness", "epoch", "sparsity_ratio", "logged"]
"""Metrics that no panel and no alert asks for; test_dashboard.py looks for all others in live processes."""
SERVICES = ((pb, "ParameterService"), (run_pb, "RunService"))
METHODS = [method.name for file, name in SERVICES for method in file.DESCRIPTOR.services_by_name[name].methods]
UNITS = ("_seconds", "_bytes", "_ratio", "_total")
PLAIN = {"version", "staleness", "members", "queue_depth", "plain_text", "loss", "epoch", "learning_rate"}
PLAIN |= {"phase", "lead", "warnings", "metric", "logged"}
"""Numbers that have no unit."""


def page(registry: CollectorRegistry) -> list[Sample]:
    """What Prometheus gets of a process with these metrics."""
    web = start_metrics(0, registry, run="digits", process="someone")
    with web, urlopen(f"http://localhost:{web.server_port}/metrics") as answer:
        text = answer.read().decode()
        web.shutdown()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def series(registry: CollectorRegistry) -> int:
    return len(page(registry))


def names(registry: CollectorRegistry) -> set[str]:
    return {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}


def badly_named(registry: CollectorRegistry, process: str) -> Iterable[str]:
    prefix = f"paceline_{process}_"
    for name in names(registry) - {"paceline_run_info"}:
        if name.startswith("paceline_lane_"):  # of both processes; see test_lane_metrics
            continue
        if not name.startswith(prefix) or not (name.endswith(UNITS) or name.removeprefix(prefix) in PLAIN):
            yield name


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def progress(registry: CollectorRegistry) -> Any:
    """What a worker counts."""
    return pytest.importorskip("paceline.worker.training.status_and_metrics").Progress(registry)


@pytest.fixture
def scores(registry: CollectorRegistry) -> Any:
    """What the evaluator counts."""
    return pytest.importorskip("paceline.worker.scoring.scorer").ScoreMetrics(registry)


def test_a_server_with_64_workers_has_at_most_256_series(registry: CollectorRegistry) -> None:
    metrics = ServerMetrics(registry, "ssp", "digits")
    metrics.follow_run(lambda: RunPhase.TRAINING, lambda: 3, lambda: 0.5, lambda kind: False)
    metrics.trains("bsp")
    for index in range(64):
        metrics.saw(f"worker-{index}")
    metrics.follow([f"worker-{index}" for index in range(64)])
    for method in {*METHODS, "ServerReflectionInfo"} - {"ExchangeSparse"}:  # the lane's, instead of PushPullSparse
        metrics.call(method, "OK", 0.1)
        metrics.call(method, "UNAVAILABLE", 0.1)
    raised = [
        name
        for name, kind in error_classes().items()
        if kind.__module__ == "paceline.core.errors"
        and kind not in (Behind, Diverged, Incomplete, NoData, ScriptFailed)
        and not issubclass(kind, OutOfMemory | UsageError)
    ]  # by a server; the others are how processes and runs end, and a worker goes back with Behind
    for reason in ["old_policy", "old_version", *raised]:
        metrics.rejected.labels(reason).inc()
    assert series(registry) <= 256


def test_a_server_says_what_the_run_does(registry: CollectorRegistry) -> None:
    metrics = ServerMetrics(registry, "ssp", "digits")
    metrics.follow_run(lambda: RunPhase.SCORING, lambda: 3, lambda: 0.5, lambda kind: kind is Kind.LOSS)
    metrics.trains("bsp")

    value = registry.get_sample_value
    phases = {phase: value("paceline_server_phase", {"phase": phase}) for phase in RunPhase}
    assert phases == {phase: float(phase is RunPhase.SCORING) for phase in RunPhase}
    assert value("paceline_server_lead") == 3
    assert value("paceline_server_budget_ratio") == 0.5
    warned = {kind: value("paceline_server_warnings", {"kind": kind}) for kind in Kind}
    assert warned == {kind: float(kind is Kind.LOSS) for kind in Kind}
    assert value("paceline_run_info", {"policy": "bsp", "task": "digits", "transport": "lane"}) == 1
    assert value("paceline_run_info", {"policy": "ssp", "task": "digits", "transport": "lane"}) is None


def test_pushes_count_under_the_policy_that_trains(registry: CollectorRegistry) -> None:
    metrics = ServerMetrics(registry, "ssp")
    metrics.saw("worker-0")
    metrics.trains("bsp")
    metrics.saw("worker-0")
    metrics.saw("worker-0")

    assert registry.get_sample_value("paceline_server_updates_total", {"policy": "ssp"}) == 1
    assert registry.get_sample_value("paceline_server_updates_total", {"policy": "bsp"}) == 2


def test_the_path_of_a_task_file_is_no_label(registry: CollectorRegistry) -> None:
    ServerMetrics(registry, "ssp", "/home/me/secret/my_task.py")
    assert registry.get_sample_value("paceline_run_info", {"policy": "ssp", "task": "own", "transport": "lane"}) == 1


def test_workers_that_come_and_go_do_not_pile_up(registry: CollectorRegistry) -> None:
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
    assert series(registry) <= 256
    cluster.restart(0)
    assert cluster.metric("recoveries_total") == 1
    assert 0 < cluster.metric("disk_used_ratio") < 1
    cluster.close()


def test_a_disk_that_says_nothing_leaves_the_other_metrics_alone(registry: CollectorRegistry, tmp_path: Path) -> None:
    ServerMetrics(registry, "ssp").follow_disk(tmp_path / "gone")
    found = {sample.name: sample.value for sample in page(registry)}
    assert math.isnan(found["paceline_server_disk_used_ratio"])
    assert found["paceline_run_info"] == 1


def test_a_worker_has_at_most_120_series_all_well_named(registry: CollectorRegistry, progress: Any) -> None:
    replica_module = pytest.importorskip("paceline.worker.training.model_and_gradient")
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


def test_every_series_says_its_run_and_process_and_how_much_memory_there_is(registry: CollectorRegistry) -> None:
    ServerMetrics(registry, "ssp").saw("worker-0")
    found = page(registry)
    assert {(sample.labels["run"], sample.labels["process"]) for sample in found} == {("digits", "someone")}
    values = {sample.name: sample.value for sample in found}
    assert 0 < values["process_resident_memory_bytes"] < values["paceline_memory_limit_bytes"]


def test_memory_that_is_touched_first_counts_as_minor_faults() -> None:
    def faults() -> float:
        return next(found.value for found in page(CollectorRegistry()) if found.name == "paceline_minor_faults_total")

    before = faults()
    with mmap.mmap(-1, 32 << 20) as fresh:  # some huge pages at least, however large the kernel makes them
        fresh.write(bytes(32 << 20))
    assert faults() >= before + 8


def test_the_phases_of_a_step_add_up_to_its_time(
    registry: CollectorRegistry, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    own_time(monkeypatch, sys.modules[type(progress).__module__], monotonic=lambda: now[0])

    for phase, passed in (("data", 1.0), ("compute", 2.0), ("exchange", 8.0)):
        progress.enter(phase)
        now[0] += passed
    progress.stepped(1, 0, None, [pb.PullHead(waited=5.0)], 1.0)
    progress.enter("data")

    spent = {
        phase: registry.get_sample_value("paceline_worker_step_seconds_sum", {"phase": phase})
        for phase in ("data", "compute", "exchange", "wait")
    }
    assert spent == {"data": 1.0, "compute": 2.0, "exchange": 3.0, "wait": 5.0}


def test_a_loss_that_is_no_number_is_shown_as_such(registry: CollectorRegistry, progress: Any) -> None:
    step = pytest.importorskip("paceline.worker.training.step_result").Step
    heads = [pb.PullHead()]

    def shown() -> float:
        return registry.get_sample_value("paceline_worker_loss") or 0.0

    assert math.isnan(shown())
    progress.stepped(1, 0, step(None, 0.5, 32, True), heads, 1.0)
    assert shown() == 0.5
    progress.stepped(2, 0, step(None, math.nan, 32, False), heads, 1.0)
    assert math.isnan(shown())


def test_the_evaluator_tells_loss_and_accuracy_of_each_split(registry: CollectorRegistry, scores: Any) -> None:
    scores.note(3, 1.5, {"train": {"loss": 0.5, "accuracy": 0.9}, "test": {"loss": 0.7, "accuracy": 0.8}})
    assert registry.get_sample_value("paceline_eval_accuracy_ratio", {"split": "test"}) == 0.8
    assert registry.get_sample_value("paceline_eval_loss", {"split": "train"}) == 0.5
    assert list(badly_named(registry, "eval")) == []


@pytest.mark.parametrize(
    ("measured", "found"),
    [
        (
            [{"loss": 0.7, "f1": 0.2, "mean error": -3.0}, {"loss": 0.6, "f1": 0.25}],
            {"f1": 0.25, "mean_error": -3, "loss": None},
        ),
        (
            [{"error %": 0.1, "error_2": 0.2, "error_%": 0.3, "error__": 0.4}],
            {"error__": 0.1, "error_2": 0.2, "error___2": 0.3, "error___3": 0.4},
        ),
    ],
    ids=["under names that labels may have", "names that look alike in labels stay apart"],
)
def test_the_evaluator_tells_whatever_the_task_measures(
    registry: CollectorRegistry, scores: Any, measured: list[dict[str, float]], found: dict[str, float | None]
) -> None:
    for epoch, metrics in enumerate(measured):
        scores.note(epoch, 1.5, {"test": metrics})

    value = registry.get_sample_value
    assert {name: value("paceline_eval_metric", {"split": "test", "metric": name}) for name in found} == found


def test_a_task_with_very_many_metrics_fills_a_few_series_only(registry: CollectorRegistry, scores: Any) -> None:
    before = series(registry)
    scores.note(1, 1.5, {"test": {f"recall_{number}": 0.5 for number in range(1000)}})
    assert series(registry) - before == 20


def test_metrics_are_served_on_a_port_of_their_own(registry: CollectorRegistry) -> None:
    ServerMetrics(registry, "bsp").saw("worker-0")
    port = serve_metrics(0, registry)
    with urlopen(f"http://localhost:{port}/metrics") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    assert "paceline_server_updates" in {family.name for family in families}
    assert not [family.name for family in families if family.name.endswith("_created")]
    with pytest.raises(ConfigError, match=f"metrics port {port}"):
        serve_metrics(port, registry)

"""A server's Prometheus metrics; the caller passes the registry, so a whole cluster fits in one test process."""

import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.warnings import Kind
from paceline.core.settings.config import NAME

_SECONDS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.5, 2.5, 20)
"""Coarse, so that a server with 64 workers stays below 250 series."""
_ROUGH_SECONDS = (2.5, 20)
"""Buckets for times that no panel draws: only long ones matter."""
_DATA_PLANE = {"PushPull", "PushPullSparse", "ExchangeSparse", "Push", "Pull"}
_REASONS = ("old_policy", "old_version", "too_stale", "BadPush")
"""The common reasons for rejected pushes: each series starts at 0, so its first rejection shows."""


class ServerMetrics:
    """The `paceline_server_*` metrics of one process."""

    def __init__(
        self,
        registry: CollectorRegistry,
        policy: str,
        task: str = "",
        transport: str = "lane",
        is_plain: bool = False,
    ) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"paceline_server_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"paceline_server_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"paceline_server_{name}", text, labels, registry=registry, buckets=buckets)

        self._registry = registry
        is_name = NAME.fullmatch(task.replace("_", "-")) is not None  # otherwise the path of a user's file
        self._task = task if is_name else "own"
        self._transport = transport
        self._policy = ""
        labels = ("policy", "task", "transport")
        self._info = Gauge("paceline_run_info", "1 for the run's present policy", labels, registry=registry)
        self._updates = counter("updates_total", "Pushes counted on the slice", "policy")
        self.trains(policy)
        self._phase = gauge("phase", "1 for the run's phase", "phase")
        self._lead = gauge("lead", "Clocks from the slowest member to the fastest one")
        self.version = gauge("version", "Folds applied to the slice")
        self.rejected = counter("pushes_rejected_total", "Pushes refused or dropped", "reason")
        for reason in _REASONS:
            self.rejected.labels(reason)
        self.capped = counter("pushes_capped_total", "Pushes above push_norm_cap, scaled down to it", "worker")
        self.requests = counter("requests_total", "Finished calls", "method", "code")
        self.handle = seconds("handle_seconds", "Time in a push or pull, waiting included", "method")
        self.received = counter("received_bytes_total", "Encoded tensor bytes received")
        self.sent = counter("sent_bytes_total", "Encoded tensor bytes sent")
        self.queue = gauge("queue_depth", "Pushes waiting for an assembly buffer")
        self.queue_seconds = seconds("queue_seconds", "Wait for an assembly buffer", buckets=_ROUGH_SECONDS)
        self.fold = seconds("fold_seconds", "Time in the slice for one push, folds included")
        self.staleness = Histogram(
            "paceline_server_staleness",
            "Folds by others since the weights of a push",
            registry=registry,
            buckets=(0, 1, 2, 4, 8, 16, 32, 64, 128),
        )
        self.wait = seconds("wait_seconds", "Time the policy let a reply wait, also where its worker left first")
        self.slice_bytes = gauge("slice_bytes", "Weights of the slice")
        self.optimizer_bytes = gauge("optimizer_bytes", "Optimizer slots of the slice")
        self.members = gauge("members", "Workers that count")
        self.seen = gauge("member_seen_timestamp_seconds", "Last push of a worker", "worker")
        self._seen: set[str] = set()
        self.checkpoint_time = gauge("checkpoint_timestamp_seconds", "Newest snapshot, or this process's start")
        self.checkpoint_time.set(time.time())
        self.checkpoint_interval = gauge("checkpoint_interval_seconds", "Time from one snapshot to the next")
        self.checkpoint_seconds = seconds("checkpoint_seconds", "Time to write a snapshot", buckets=_ROUGH_SECONDS)
        self.checkpoint_failures = counter("checkpoint_failures_total", "Snapshots that could not be written")
        self.recoveries = counter(
            "recoveries_total", "Starts from a snapshot, and times that all servers went back to one"
        )
        self._disk_used = gauge("disk_used_ratio", "Share of the disk with the snapshots that is in use")
        self.damaged = counter("damaged_snapshots_total", "Damaged snapshots that this start has passed over")
        gauge("plain_text", "1 where tensors and tokens travel to other machines unencrypted").set(is_plain)

    def call(self, method: str, code: str, seconds: float) -> None:
        """One finished call."""
        self.requests.labels(method, code).inc()
        if method in _DATA_PLANE:
            self.handle.labels(method).observe(seconds)

    def follow_run(
        self,
        phase: Callable[[], RunPhase],
        lead: Callable[[], float],
        budget: Callable[[], float] | None,
        warned: Callable[[Kind], bool] | None = None,
    ) -> None:
        """Sets the functions that give the current values; only the chief knows the spent `budget` (ratio) and what is
        `warned` of."""
        for each in RunPhase:
            self._phase.labels(each).set_function(partial(_is_in, phase, each))
        self._lead.set_function(lead)
        if budget is not None:
            text = "Share of the run's examples that is trained"
            Gauge("paceline_server_budget_ratio", text, registry=self._registry).set_function(budget)
        if warned is not None:
            text = "1 for what goes wrong just now although the run goes on"
            gauge = Gauge("paceline_server_warnings", text, ["kind"], registry=self._registry)
            for kind in Kind:
                gauge.labels(kind).set_function(partial(warned, kind))

    def follow_disk(self, folder: Path) -> None:
        """Sets the folder whose disk is measured at each scrape."""
        self._disk_used.set_function(partial(_used, folder))

    def trains(self, policy: str) -> None:
        """Sets the policy that folds from now on."""
        if policy != self._policy:
            self._policy = policy
            self._counted = self._updates.labels(policy)
            self._info.clear()
            self._info.labels(policy, self._task, self._transport).set(1)

    def saw(self, worker: str) -> None:
        """Notes that a push of the worker was counted."""
        self._counted.inc()
        self.seen.labels(worker).set(time.time())
        self._seen.add(worker)

    def follow(self, members: Iterable[str]) -> None:
        """Sets the members; other workers' series end, so that series of past workers don't pile up."""
        here = set(members)
        self.members.set(len(here))
        for worker in self._seen - here:
            self.seen.remove(worker)
            self.capped.remove(worker)
        self._seen &= here


def _is_in(present: Callable[[], RunPhase], phase: RunPhase) -> float:
    return float(present() is phase)


def _used(folder: Path) -> float:
    """The share of its disk that is in use, as `df` has it; NaN where the disk does not say."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return float("nan")
    return disk.used / max(disk.used + disk.free, 1)

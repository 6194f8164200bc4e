"""What a server tells Prometheus; the registry is handed in, so that a whole cluster fits in one test process."""

import resource
import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.5, 2.5, 20)
"""Coarse, so that a server with 64 workers stays below 250 series."""
_DATA_PLANE = {"Resume", "Initialise", "PushPull", "Push", "Pull"}


class ServerMetrics:
    """The `paceline_server_*` metrics of one process."""

    def __init__(self, registry: CollectorRegistry, policy: str) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"paceline_server_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"paceline_server_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"paceline_server_{name}", text, labels, registry=registry, buckets=_SECONDS)

        self.updates = counter("updates_total", "Pushes counted on the slice", "policy").labels(policy)
        self.version = gauge("version", "Folds applied to the slice")
        self.rejected = counter("pushes_rejected_total", "Pushes refused or dropped", "reason")
        self.requests = counter("requests_total", "Finished calls", "method", "code")
        self.handle = seconds("handle_seconds", "Time in a call of the data plane, waiting included", "method")
        self.received = counter("received_bytes_total", "Encoded tensor bytes received")
        self.sent = counter("sent_bytes_total", "Encoded tensor bytes sent")
        self.queue = gauge("queue_depth", "Pushes waiting for an assembly buffer")
        self.queue_seconds = seconds("queue_seconds", "Wait for an assembly buffer")
        self.fold = seconds("fold_seconds", "Time in the slice for one push, folds included")
        self.staleness = Histogram(
            "paceline_server_staleness", "Folds by others since the weights of a push", registry=registry,
            buckets=(0, 1, 2, 4, 8, 16, 32, 64, 128),
        )  # fmt: skip
        self.wait = seconds("wait_seconds", "Time the policy held a reply back")
        self.slice_bytes = gauge("slice_bytes", "Weights of the slice")
        self.optimizer_bytes = gauge("optimizer_bytes", "Optimizer slots of the slice")
        self.members = gauge("members", "Workers that count")
        self.seen = gauge("member_seen_timestamp_seconds", "Last push of a worker", "worker")
        self._seen: set[str] = set()
        self.checkpoint_time = gauge("checkpoint_timestamp_seconds", "Newest snapshot on disk")
        self.checkpoint_seconds = seconds("checkpoint_seconds", "Time to write a snapshot")
        self.checkpoint_failures = counter("checkpoint_failures_total", "Snapshots that could not be written")
        self.recoveries = counter("recoveries_total", "Starts from a snapshot")
        gauge("minor_faults", "Page faults without disk of the process").set_function(
            lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        )
        gauge("plain_text", "1 where tensors and tokens travel unencrypted").set(1)

    def call(self, method: str, code: str, seconds: float) -> None:
        """One finished call."""
        self.requests.labels(method, code).inc()
        if method in _DATA_PLANE:
            self.handle.labels(method).observe(seconds)

    def saw(self, worker: str) -> None:
        """A push of the worker was counted."""
        self.updates.inc()
        self.seen.labels(worker).set(time.time())
        self._seen.add(worker)

    def follow(self, members: Iterable[str]) -> None:
        """Who counts from now on; others' series end, so that names that come and go don't pile up."""
        here = set(members)
        self.members.set(len(here))
        for worker in self._seen - here:
            self.seen.remove(worker)
        self._seen &= here

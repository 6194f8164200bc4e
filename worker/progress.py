"""Where a worker is and how it does: for heartbeats, status and Prometheus."""

import threading
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paceline.v1 import parameter_service_pb2 as pb
from worker.replica import Step


class Progress:
    """Written by the training loop, read by the heartbeat. Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self.clock = 0
        self.phase = "joining"
        self._since = self._rate_since = time.monotonic()
        self._rate_examples = 0
        self.figures: dict[str, float] = {"wait_seconds": 0.0}

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"paceline_worker_{name}", text, registry=registry)

        self._examples = Counter("paceline_worker_examples_total", "Examples pushed", registry=registry)
        self._steps = Counter("paceline_worker_steps_total", "Steps completed", registry=registry)
        self._screened = Counter(
            "paceline_worker_screened_steps_total", "Steps whose gradient was not finite", registry=registry
        )
        self._retries = Counter(
            "paceline_worker_retries_total", "Exchanges that failed and were repeated", ["code"], registry=registry
        )
        self._seconds = Histogram(
            "paceline_worker_step_seconds", "Time of a step by phase", ["phase"], registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )  # fmt: skip
        self._alpha = gauge("alpha_ratio", "Weight of the global model in the last mix")
        self._staleness = gauge("staleness", "Staleness of the last push, the largest over the slices")
        self._loss = gauge("loss", "Loss of the last mini-batch")
        self._epoch = gauge("epoch", "Epoch of the last step, from 0")

    def enter(self, phase: str) -> None:
        """The loop goes over to another phase: joining, waiting, data, compute, exchange or done."""
        now = time.monotonic()
        with self._lock:
            if self.phase in ("data", "compute", "exchange"):
                self._seconds.labels(self.phase).observe(now - self._since)
            self.phase, self._since = phase, now

    def retried(self, code: str) -> None:
        """An exchange failed with this status and is repeated."""
        self._retries.labels(code).inc()

    def stepped(self, clock: int, epoch: int, step: Step | None, heads: Sequence[pb.PullHead], alpha: float) -> None:
        """One clock is completed."""
        waited = max(head.waited for head in heads)
        self._steps.inc()
        self._epoch.set(epoch)
        self._alpha.set(alpha)
        self._staleness.set(max(head.staleness for head in heads))
        self._seconds.labels("wait").observe(waited)
        with self._lock:
            self.clock = clock
            self.figures["wait_seconds"] += waited
            self.figures["staleness"] = max(head.staleness for head in heads)
            self.figures["alpha"] = alpha
            if step is not None:
                self._note(step)

    def state(self) -> tuple[int, str, float, dict[str, float]]:
        """Clock, phase, seconds in it, figures."""
        now = time.monotonic()
        with self._lock:
            passed = now - self._rate_since
            if passed > 1:
                self.figures["examples_per_second"] = self._rate_examples / passed
                self._rate_since, self._rate_examples = now, 0
            return self.clock, self.phase, now - self._since, dict(self.figures)

    def _note(self, step: Step) -> None:
        self.figures["loss"] = step.loss
        self._loss.set(step.loss)
        if step.finite:
            self._examples.inc(step.examples)
            self._rate_examples += step.examples
        else:
            self._screened.inc()

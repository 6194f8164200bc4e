"""The `paceline_serve_*` metrics of `paceline serve`."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_EXAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServeMetrics:
    """Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("paceline_serve_requests", "Requests that were answered", ["code"], registry=registry)
        self._seconds = Histogram(
            "paceline_serve_request_seconds",
            "Time from a request to its answer",
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "paceline_serve_batch_examples",
            "Examples that went through the model together",
            buckets=_EXAMPLES,
            registry=registry,
        )
        self._version = Gauge(
            "paceline_serve_model_version", "Newest slice of the model that answers (folds)", registry=registry
        )
        age = Gauge("paceline_serve_model_age_seconds", "Time since the model that answers was read", registry=registry)
        self._swaps = Counter("paceline_serve_models", "Models that have begun to answer", registry=registry)
        self._failures = Counter(
            "paceline_serve_failed_reads", "Times that a newer model could not be read", registry=registry
        )
        self._waiting = Gauge("paceline_serve_waiting_examples", "Examples that have no answer yet", registry=registry)
        self._taken: float | None = None
        age.set_function(self.age)

    def age(self) -> float:
        """Of the model that answers (seconds); 0 before there is one."""
        return 0.0 if self._taken is None else time.monotonic() - self._taken

    def answered(self, code: str, seconds: float) -> None:
        """Counts a request that was answered with that status."""
        self._requests.labels(code).inc()
        self._seconds.observe(seconds)

    def follow_waiting(self, count: Callable[[], float]) -> None:
        """From now on `count` tells how many examples wait."""
        self._waiting.set_function(count)

    def batch(self, examples: int) -> None:
        self._batches.observe(examples)

    def swapped(self, version: int) -> None:
        """Another model answers from now on."""
        self._taken = time.monotonic()
        self._version.set(version)
        self._swaps.inc()

    def failed(self) -> None:
        self._failures.inc()

"""What the sharder tells Prometheus: how far it is, and what it has sent."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from paceline.data.progress import Progress


class SharderMetrics(Progress):
    """The `paceline_sharder_*` and `paceline_shard_*` metrics of one process. Called from one thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ratio = Gauge(
            "paceline_sharder_progress_ratio", "Share of the stage that is done", ["stage"], registry=registry
        )
        self._examples = Counter(
            "paceline_sharder_examples_total", "Examples done in the stage", ["stage"], registry=registry
        )
        self._shards = Gauge("paceline_shard_examples", "Examples of the shard", ["shard"], registry=registry)
        self._name = ""
        self._total = 0
        self._done = 0

    def stage(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self.advance(0)

    def advance(self, count: int) -> None:
        self._done += count
        self._examples.labels(self._name).inc(count)
        self._ratio.labels(self._name).set(min(1.0, self._done / self._total) if self._total else 1.0)

    def shard(self, number: int, examples: int) -> None:
        self._shards.labels(str(number)).set(examples)


class ServingMetrics:
    """The `paceline_sharder_*` metrics of what is sent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter("paceline_sharder_sent_bytes_total", "Bytes of shards sent", registry=registry)
        self._requests = Counter(
            "paceline_sharder_requests_total", "Finished calls", ["method", "code"], registry=registry
        )

    def call(self, method: str, code: str, seconds: float) -> None:
        """One finished call."""
        self._requests.labels(method, code).inc()

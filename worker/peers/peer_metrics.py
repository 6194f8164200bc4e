"""What a worker of a run without servers tells Prometheus about its exchange with the others."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class PeerMetrics:
    """The metrics of one process. Thread-safe."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: where Prometheus finds them; None: nobody asks."""
        registry = registry or CollectorRegistry()
        self.members = Gauge(
            "paceline_worker_members", "Members of the newest view that this worker knows", registry=registry
        )
        self.waiting = Gauge(
            "paceline_worker_queue_depth", "Messages that wait to be taken by other workers", registry=registry
        )
        self.sent = Counter(
            "paceline_worker_peer_sent_bytes_total", "Bytes of values that other workers have taken", registry=registry
        )
        self.received = Counter(
            "paceline_worker_peer_received_bytes_total", "Bytes of values taken from other workers", registry=registry
        )
        self.retries = Counter(
            "paceline_worker_peer_retries_total",
            "Messages to other workers that failed and were sent again",
            registry=registry,
        )

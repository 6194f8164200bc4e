"""How far each process of a run has come: one that gets on between its deaths is started again without end."""

from paceline.launch.supervise.children import Child
from paceline.v1.run_service_pb2 import StatusReply


class Progress:
    """Fed with each status. What is computed again after a death counts only once it is further than ever before."""

    def __init__(self) -> None:
        self._examples = 0
        self._clocks: dict[str, int] = {}

    def note(self, status: StatusReply) -> None:
        """Takes in where the run is."""
        self._examples = max(self._examples, status.examples)
        for worker in status.workers:
            self._clocks[worker.worker] = max(self._clocks.get(worker.worker, 0), worker.clock)

    def of(self, child: Child) -> int:
        """A worker's own clock. Examples of the run for a server, without which no worker gets on; 0 for all others."""
        if child.role == "worker":
            return self._clocks.get(child.name, 0)
        return self._examples if child.role == "server" else 0

"""A process on another machine, as the launcher sees its own children: its log arrives here, its host starts and ends it."""

from paceline.launch.other_machines.hosts import Host, Hosts, RemoteProcess
from paceline.launch.supervise.children import Child
from paceline.rpc.listening import with_port


class RemoteChild(Child):
    """One process and its successors under the same name on one host."""

    def __init__(self, hosts: Hosts, host: Host, process: RemoteProcess, restarts: int) -> None:
        super().__init__(
            name=process.name,
            role=process.role,
            arguments=[],
            log=process.log,
            environment={},
            restarts_left=restarts,
        )
        self.on = host
        self._hosts = hosts
        self._at = process

    @property
    def is_here(self) -> bool:
        return False

    def start(self) -> None:
        """Asks its host for a new process."""
        self._log_start = self.log.stat().st_size if self.log is not None and self.log.exists() else 0
        self.code = None
        self._hosts.change(self._at)

    @property
    def pid(self) -> int | None:
        return self._at.pid

    @property
    def listens_at(self) -> str:
        is_known = self._at.port and self._at.running == self._at.start
        return with_port(self.on.address, self._at.port) if is_known else ""

    @property
    def running(self) -> bool:
        return self.poll() is None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self._at.code
        return self.code

    def lost(self, code: int, words: str) -> None:
        """Its host will say nothing of it any more."""
        self.code = code
        self._at.ended = words

    def signal(self, number: int) -> None:
        if self.running:
            self._hosts.change(self._at, int(number))

    @property
    def lacked_memory(self) -> bool:
        return self._at.lacked_memory

    def how_it_ended(self) -> str:
        return f"on {self.on.name} {self._at.ended}"

"""Starts the processes of a run in order: what writes the shards, servers, the check, workers and evaluator."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.base.private import make_private
from paceline.core.errors import ServersGone
from paceline.core.settings.config import Config
from paceline.data.as_read import how_read
from paceline.data.shards import is_there
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.settings.launch_settings import LaunchSettings
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.processes import Ended, Processes
from paceline.launch.supervise.script_processes import ScriptProcesses
from paceline.launch.supervise.words_and_ports import kept_port, listening_at, ports_of, server_words, worker_words
from paceline.launch.this_machine.free_ports import FreePorts
from paceline.launch.this_machine.processors import cores
from paceline.sharder.command_line import ToldShardServer
from paceline.worker.command_line import ToldCheck, ToldEvaluator


class Starting:
    """The start of one launch. Ended: it can't go on."""

    def __init__(
        self,
        settings: LaunchSettings,
        processes: Processes,
        own: OwnRecords,
        others: Others,
        say: Callable[[str], None],
        has_shards: bool,
    ) -> None:
        """`has_shards`: they exist already, another run's."""
        self._settings = settings
        self._config = settings.config
        self._folder = settings.folder
        self._processes = processes
        self._own = own
        self._others = others
        self._say = say
        self._has_shards = has_shards
        self._ports = FreePorts(settings.config.ports)
        self._shard_server = ""
        self._script = ScriptProcesses(settings, processes, others, say)
        self._began = time.monotonic()

    def servers(self) -> list[str]:
        """Starts the servers, while the shards are made and checked; their addresses, once all listen."""
        sharder = None if self._config.is_script else self._begin_shards()
        count = self._config.server_processes
        self._stage(f"starting {count} server{'s' * (count != 1)}")
        servers = self._begin_servers()
        if not self._config.is_script:
            self._await_shards(sharder)
            self._check()
        addresses = [self._address(child, index) for index, child in enumerate(servers)]
        self._own.note(chief=addresses[0], servers=addresses)
        self._processes.note_pids()
        return addresses

    def workers(self, servers: list[str]) -> Config:
        """Starts workers and evaluator together; the run's settings, which a script completes."""
        make_private(self._folder.models)
        here = self._others.workers_here(self._config)
        self._stage(
            f"starting {here} worker{'s' * (here != 1)}" if here else "waiting for the workers of other machines"
        )
        for rank in range(here):
            self._start_worker(rank, servers)
        self._want_others(range(here, self._config.workers), servers)
        if not self._config.is_script:
            own = {"models": self._folder.models, "final_threads": cores()}
            told = ToldEvaluator(**own, **self._client("evaluator", servers))
            self._start("evaluator", "evaluator", told.arguments())
        self._processes.note_pids()
        return self._script.settle(servers) if self._config.is_script else self._config

    # shards
    def _begin_shards(self) -> Child | None:
        """Starts what writes the shards, or serves them; None where they exist."""
        shards = self._settings.shards
        if self._config.data.source == "server":
            told = ToldShardServer(out=shards, **self._settings.arguments("sharder"))
            return self._start("sharder", "shard server", [*told.arguments(), "--port", str(self._ports.take())])
        if self._has_shards:
            return None
        self._stage("writing shards")
        return self._start("sharder", "sharder", ["--config", str(self._folder.config), "--out", str(shards)])

    def _await_shards(self, sharder: Child | None) -> None:
        """Returns when the shards are whole; says how the data was read, where they are here."""
        if sharder is not None and sharder.role == "sharder":
            self._processes.wait_for(lambda: sharder.poll() == 0)
        elif sharder is not None:
            ports = self._processes.wait_for(lambda: ports_of(self._folder.ports("sharder"), sharder.pid))
            assert ports is not None
            self._shard_server = kept_port(sharder, ports)
        self._tell_how_read()

    def _tell_how_read(self) -> None:
        self._own.note(as_read=(read := how_read(self._settings.shards)))
        for line in read:
            self._say(line)

    def _check(self) -> None:
        """One mini-batch through all that the task needs, in one process, before anything is trained."""
        settings = self._settings
        told = ToldCheck(config=self._folder.config, shards=settings.shards, device=settings.device, threads=cores())
        url = self._config.data.shards_at
        fetches = url is not None and not is_there(settings.shards)
        self._stage(f"fetching the shards from {url}, and checking the task" if fetches else "checking the task")
        check = self._start("check", "check", told.arguments())
        self._processes.wait_for(lambda: check.poll() == 0)
        if fetches:
            self._tell_how_read()

    # servers
    def _begin_servers(self) -> list[Child]:
        """Starts the servers, the chief first, while the data is read and checked: they need the config only."""
        first = self._start_server(0)
        chief = self._address(first, 0) if self._config.servers > 1 else ""
        return [first, *(self._start_server(index, chief) for index in range(1, self._config.servers))]

    def _start_server(self, index: int, chief: str = "") -> Child:
        name, folder = f"server-{index}", self._folder.server(index)
        make_private(folder)
        self._folder.ports(name).unlink(missing_ok=True)
        if index >= self._others.servers_here(self._config):
            return self._lent_server(index, chief)
        ports = {"port": self._ports.take(), "lane_port": self._ports.take()}
        words = server_words(
            {"index": index, "folder": folder, "chief": chief, **ports, **self._settings.arguments(name)}
        )
        return self._begin(name, "server", words)

    def _address(self, server: Child, index: int) -> str:
        """Where the server listens, once it does."""
        report = self._folder.ports(server.name)
        found = self._processes.wait_for(lambda: listening_at(server, report), self._config.start_timeout)
        if found is None:
            seconds = f"{self._config.start_timeout:.0f} s"
            raise Ended(
                ServersGone.exit_code, f"{server.name} did not listen within {seconds}. Its last lines:{server.tail()}"
            )
        return found

    # several machines
    def _lent_server(self, index: int, chief: str) -> Child:
        """A server on another machine, which may be still to come."""
        log, restarts = self._folder.log(f"server-{index}"), self._config.restarts
        child = self._processes.wait_for(
            lambda: self._others.lend_server(index, {"chief": chief}, log, restarts), self._config.start_timeout
        )
        if child is None:
            raise Ended(
                ServersGone.exit_code, f"no machine with room for server-{index} has joined: paceline join -s 1"
            )
        return self._processes.take(child)

    def _want_others(self, ranks: range, servers: list[str]) -> None:
        """Machines that join get these workers."""
        if self._config.is_script and 0 in ranks:
            self._processes.show_log("worker-0")
        told = {"servers": ",".join(servers), "shard_server": self._shard_server}
        self._others.want_workers(ranks, told, self._folder.log, self._config.restarts)

    # workers
    def _start_worker(self, rank: int, servers: list[str]) -> Child:
        """A worker, or the user's script as one."""
        name, settings = f"worker-{rank}", self._settings
        here = {"peer_port": self._ports.take(), **self._others.told_here()}
        own = {"rank": rank, "threads": settings.threads, "residuals": self._folder.residuals, **here}
        if self._config.is_script:
            return self._script.start_worker(rank, own, servers)
        words = worker_words({**self._client(name, servers), **own})
        return self._processes.begin(name, "worker", words, settings.environment, self._config.restarts)

    def _client(self, name: str, servers: list[str]) -> dict[str, Any]:
        """What workers and evaluator must know alike: each copies a shard server's shards to its own folder."""
        return {
            "shards": self._folder.copies(name) if self._shard_server else self._settings.shards,
            "shard_server": self._shard_server,
            "servers": ",".join(servers),
            "device": self._settings.device,
            **self._settings.arguments(name),
        }

    def _start(self, name: str, role: str, words: list[str]) -> Child:
        """A process of Paceline, with these words on its command line."""
        others = {"check": "worker.check", "evaluator": "worker.evaluator", "shard server": "sharder serve"}
        module = others.get(role, role).split()
        return self._begin(name, role, ["-m", f"paceline.{module[0]}", *module[1:], *words])

    def _begin(self, name: str, role: str, command: Sequence[str]) -> Child:
        restarts = 0 if role in ("sharder", "check") else self._config.restarts
        return self._processes.begin(name, role, [*command], self._settings.environment, restarts)

    def _stage(self, what: str) -> None:
        """Says what begins, with the time since the launch."""
        self._say(f"{time.monotonic() - self._began:5.1f} s  {what}")

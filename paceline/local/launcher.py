"""Runs a whole training on this machine: starts the processes in order, watches them, and leaves none behind."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paceline.callback import Callback
from paceline.core.errors import ConfigError, DataError, OutOfMemory, PacelineError, ServersGone, UsageError
from paceline.core.settings.config import Config
from paceline.core.steps.effective import told as rates_told
from paceline.core.sync.policy import build_policy
from paceline.data.as_read import how_read
from paceline.local.child_environment import child_environment
from paceline.local.children import Child, end_all
from paceline.local.cpu_cores import cores, threads_of
from paceline.local.forker import Forker
from paceline.local.others import NoOthers, Others
from paceline.local.outcome import Outcome
from paceline.local.process_ports import kept_port, listening_at, ports_of
from paceline.local.process_words import server_words, worker_words
from paceline.local.repeated_crashes import Crashes
from paceline.local.run_folder import RunFolder
from paceline.local.run_forkers import forking
from paceline.local.run_history import Records
from paceline.local.run_status import Connect
from paceline.local.script_processes import SILENT, Printed, script_environment, script_words
from paceline.local.signals import Signals
from paceline.local.stalled_run import Stall
from paceline.own_extensions import own_files
from paceline.server.description import described, settings_with
from paceline.sharder.command_line import ToldShardServer
from paceline.v1.run_service_pb2 import StatusReply
from paceline.variables import TLS
from paceline.watch import chief_status
from paceline.watch.chief_status import Chief, News, RemoteChief, Speed, accuracy
from paceline.worker.command_line import ToldCheck, ToldEvaluator, ToldLaunched

T = TypeVar("T")
POLL = 0.5
"""Seconds between two questions to the chief while no worker ends."""
TICK = 0.02
"""Seconds between two looks at what is waited for."""
FAREWELL = 30.0
"""Seconds that workers and evaluator have to end by themselves after the run is finished (the model is written)."""
ANY_PORT = ("--port", "0")
"""What `kept_port` changes once the port is known."""
HOPELESS = (UsageError.exit_code, DataError.exit_code, ConfigError.exit_code)
"""Exit codes of mistakes that a second start would only repeat."""


class _Ended(Exception):
    """The run can't or must not go on."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def run_local(
    config: Config,
    folder: Path,
    say: Callable[[str], None] = print,
    show: Callable[[StatusReply, float], None] = lambda status, rate: None,
    *,
    connect: Connect = RemoteChief,
    shards: Path | None = None,
    device: str = "auto",
    forkers: Mapping[str, Forker] | None = None,
    others: Others | None = None,
    keep: bool = False,
    objects: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Trains as `config` says, in a folder that `open_run` has prepared; resumes what is there. `say` gets messages,
    `show` each status with the examples per second; `shards` of another run with the same data save the time to write
    them; `device` is what workers and evaluator compute on; `forkers` of another run start the processes quicker still;
    `others`: machines that lend processes to this run.
    `callbacks` hear what the loggers hear that the settings name.
    Ctrl-C and SIGTERM end it in order. Where a mistake ends its first start before anything was learned, the folder is
    deleted, unless it is to `keep`. `objects`: the descriptor of what is trained (paceline/live/packing.py), where that is no
    task and no script. ConfigError: it runs now."""
    place = RunFolder(folder)
    is_new = not place.facts()
    with ExitStack() as stack:
        stack.enter_context(place.locked())
        signals = stack.enter_context(Signals())
        records = stack.enter_context(closing(Records(place, config, callbacks)))
        forkers = forkers or stack.enter_context(forking(config, inherited=() if objects is None else (objects,)))
        launch = _Launch(
            config,
            place,
            say=say,
            show=show,
            connect=connect,
            shards=shards,
            device=device,
            signals=signals,
            records=records,
            forkers=forkers,
            objects=objects,
            others=others or NoOthers(),
        )
        try:
            launch.train()
        except _Ended as end:
            launch.note_end(end)
        finally:
            launch.end()
    if launch.outcome.refused and is_new and not keep:
        shutil.rmtree(place.path, ignore_errors=True)
    return launch.outcome


class _Launch:
    """One go at a run. Lives in the main thread, because children end with the thread that started them."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        *,
        say: Callable[[str], None],
        show: Callable[[StatusReply, float], None],
        connect: Connect,
        shards: Path | None,
        device: str,
        signals: Signals,
        records: Records,
        forkers: Mapping[str, Forker],
        objects: int | None,
        others: Others,
    ) -> None:
        self.outcome = Outcome()
        self._config = config
        self._folder = folder
        self._say = say
        self._show = show
        self._connect = connect
        self._signals = signals
        self._records = records
        self._shards = shards or folder.shards
        self._device = device
        self._has_shards = shards is not None
        self._shard_server = ""
        self._children: list[Child] = []
        self._chief: Chief | None = None
        self._speed = Speed()
        self._news = News()
        self._threads = threads_of(config)
        self._environment = child_environment(self._threads)
        self._forkers = forkers
        self._objects = objects
        self._others = others
        self._crashes = Crashes()
        self._began = time.monotonic()
        self._printed: list[Printed] = []

    def train(self) -> None:
        """From the shards to the final score; _Ended where that is not reached."""
        if changed := self._folder.keep_task(self._config.task):
            self._say(changed)
        for changed in self._folder.keep_own(own_files(self._config)):
            self._say(changed)
        self._folder.write_facts(
            run=self._folder.name,
            home=str(Path.cwd()),
            launcher=os.getpid(),
            exit_code=None,
            chief=None,
            finished=False,
            tls=str(Path(keys).resolve()) if (keys := os.environ.get(TLS)) else None,
        )
        self._others.open(self._say)
        sharder = None if self._config.is_script else self._begin_shards()
        count = self._config.server_processes
        self._stage(f"starting {count} server{'s' * (count != 1)}")
        servers = self._begin_servers()
        if not self._config.is_script:
            self._await_shards(sharder)
            self._check()
        addresses = self._await_servers(servers)
        self._chief = self._connect(addresses[0], self._folder.credentials())
        self._work(addresses)
        if self._config.is_script:
            self._hear_script(addresses)
        self._records.begin(self._config)
        self._watch(self._chief)
        self.outcome.exit_code = 0
        self._let_end()

    def note_end(self, end: _Ended) -> None:
        """The run ends with this."""
        self.outcome.refused = end.code in (*HOPELESS, OutOfMemory.exit_code) and not self._has_begun
        self.outcome.exit_code = end.code
        self.outcome.reason = end.reason

    @property
    def _has_begun(self) -> bool:
        """Whether anything was pushed; asks, since the last answer may be half a second old."""
        if not self.outcome.version and self._chief is not None and (status := self._chief.status()) is not None:
            self._note(status)
        return self.outcome.version > 0

    def end(self) -> None:
        """No process is left after this."""
        end_all(self._children, self._signals.hurry)
        self._tell_printed()
        self._others.end(self.outcome.exit_code, self.outcome.reason)
        if self._chief is not None:
            self._chief.close()
        out = self.outcome
        if out.exit_code == 0:
            for folder in (self._folder.copies(), self._folder.residuals):
                shutil.rmtree(folder, ignore_errors=True)
        self._folder.write_facts(
            finished=out.exit_code == 0,
            exit_code=out.exit_code,
            accuracy=out.accuracy,
            metrics=out.metrics,
            measure=out.measure,
            scored=out.scored,
            seconds=out.seconds,
            reason=out.reason,
            warnings=[asdict(each) for each in out.warnings],
            pids={},
        )
        self._records.end(out, self._signals.hurry, self._say)
        self._folder.write_facts(warnings=[asdict(each) for each in out.warnings])

    # starting
    def _begin_shards(self) -> Child | None:
        """Starts what writes the shards, or serves them; None where they are there."""
        if self._config.data.source == "server":
            told = ToldShardServer(out=self._shards, **self._shared("sharder"))
            return self._start("sharder", "shard server", [*told.arguments(), *ANY_PORT])
        if self._has_shards:
            return None
        self._stage("writing shards")
        return self._start("sharder", "sharder", ["--config", str(self._folder.config), "--out", str(self._shards)])

    def _await_shards(self, sharder: Child | None) -> None:
        """Returns when the shards are whole; says how the data was read."""
        if sharder is not None and sharder.role == "sharder":
            self._wait_for(lambda: sharder.poll() == 0)
        elif sharder is not None:
            ports = self._wait_for(lambda: ports_of(self._folder.ports("sharder"), sharder.pid))
            assert ports is not None
            self._shard_server = kept_port(sharder, ports)
        self._folder.write_facts(as_read=(read := how_read(self._shards)))
        for line in read:
            self._say(line)

    def _check(self) -> None:
        """One mini-batch through all that the task needs, in one process, before anything is trained."""
        told = ToldCheck(config=self._folder.config, shards=self._shards, device=self._device, threads=cores())
        self._stage("checking the task")
        check = self._start("check", "check", told.arguments())
        self._wait_for(lambda: check.poll() == 0)

    def _begin_servers(self) -> list[Child]:
        """Starts the servers, the chief first, while the data is read and checked: they need the config only."""
        first = self._start_server(0)
        chief = self._address(first, 0) if self._config.servers > 1 else ""
        return [first, *(self._start_server(index, chief) for index in range(1, self._config.servers))]

    def _await_servers(self, servers: Sequence[Child]) -> list[str]:
        """Their addresses, once all listen."""
        addresses = [self._address(child, index) for index, child in enumerate(servers)]
        self._folder.write_facts(chief=addresses[0], servers=addresses, pids=self._pids())
        return addresses

    def _start_server(self, index: int, chief: str = "") -> Child:
        name, folder = f"server-{index}", self._folder.server(index)
        folder.mkdir(exist_ok=True)
        self._folder.ports(name).unlink(missing_ok=True)
        if index >= self._others.servers_here(self._config):
            return self._lent_server(index, chief)
        words = server_words({"index": index, "folder": folder, "chief": chief, **self._shared(name)})
        return self._begin(name, "server", [*words, *ANY_PORT], self._environment, self._config.restarts)

    def _lent_server(self, index: int, chief: str) -> Child:
        """A server on another machine, which may be still to come."""
        log, restarts = self._folder.log(f"server-{index}"), self._config.restarts
        child = self._wait_for(
            lambda: self._others.lend_server(index, {"chief": chief}, log, restarts), self._config.start_timeout
        )
        if child is None:
            raise _Ended(
                ServersGone.exit_code, f"no machine with room for server-{index} has joined: paceline join -s 1"
            )
        self._children.append(child)
        child.start()
        return child

    def _address(self, server: Child, index: int) -> str:
        """Where the server listens, once it does."""
        report = self._folder.ports(server.name)
        found = self._wait_for(lambda: listening_at(server, report), self._config.start_timeout)
        if found is None:
            seconds = f"{self._config.start_timeout:.0f} s"
            raise _Ended(
                ServersGone.exit_code, f"{server.name} did not listen within {seconds}. Its last lines:{server.tail()}"
            )
        return found

    def _work(self, servers: list[str]) -> None:
        """Starts workers and evaluator together."""
        self._folder.models.mkdir(exist_ok=True)
        here = self._others.workers_here(self._config)
        self._stage(f"starting {here} worker{'s' * (here != 1)}")
        for rank in range(here):
            self._start_worker(rank, servers)
        lent = range(here, self._config.workers)
        if self._config.is_script and 0 in lent:
            self._printed.append(Printed(self._folder.log("worker-0"), self._say))
        told = {"servers": ",".join(servers), "shard_server": self._shard_server}
        self._others.want_workers(lent, told, self._folder.log, self._config.restarts)
        if not self._config.is_script:
            evaluator = ToldEvaluator(models=self._folder.models, **self._client("evaluator", servers))
            self._start("evaluator", "evaluator", evaluator.arguments())
        self._folder.write_facts(pids=self._pids())

    def _hear_script(self, servers: list[str]) -> None:
        """Waits until the script has told the servers what it wants, and goes on with the whole settings; starts the
        evaluator where the script has anything for it."""
        found = self._wait_for(lambda: described(self._folder.server(0)) or self._refuse_silence())
        assert found is not None
        self._config = settings_with(found, self._folder.given)
        self._folder.rewrite(self._config.model_dump(mode="json"))
        for line in rates_told(self._config, build_policy(self._config.policy)):
            self._say(line)
        if self._config.evaluate_every:
            told = ToldLaunched(evaluates=True, **self._script("evaluator", servers))
            self._run_script("evaluator", "evaluator", told)
            self._folder.write_facts(pids=self._pids())

    def _refuse_silence(self) -> dict[str, Any] | None:
        """_Ended where all scripts have ended and none has trained."""
        if not self._others.awaited() and all(child.code == 0 for child in self._clients()):
            raise _Ended(ConfigError.exit_code, f"{self._config.task} {SILENT}")
        return None

    def _start_worker(self, rank: int, servers: list[str]) -> Child:
        """A worker, or the user's script as one."""
        name = f"worker-{rank}"
        own = {"rank": rank, "threads": self._threads, "residuals": self._folder.residuals, **self._others.told_here()}
        if self._config.is_script:
            return self._run_script(name, "worker", ToldLaunched(**{**self._script(name, servers), **own}))
        words, environment = worker_words(self._config, {**self._client(name, servers), **own}, self._environment)
        return self._begin(name, "worker", words, environment, self._config.restarts)

    def _run_script(self, name: str, role: str, told: ToldLaunched) -> Child:
        """A process of the user's script; what the first worker and the evaluator print is shown."""
        if role == "evaluator" or told.rank == 0:
            self._printed.append(Printed(self._folder.log(name), self._say))
        script = self._folder.task(self._config.task)
        words = script_words(script, self._config, self._objects)
        environment = script_environment(self._environment, told)
        return self._begin(name, role, words, environment, self._config.restarts)

    def _script(self, name: str, servers: list[str]) -> dict[str, Any]:
        """What all of the script's processes are told alike."""
        told = {
            "servers": ",".join(servers),
            "models": self._folder.models,
            "threads": self._threads,
            "device": self._device,
            "objects": self._objects,
        }
        return {**told, **self._shared(name)}

    def _client(self, name: str, servers: list[str]) -> dict[str, Any]:
        """What workers and evaluator are told alike: a shard server's shards are copied to a folder of their own."""
        return {
            "shards": self._folder.copies(name) if self._shard_server else self._shards,
            "shard_server": self._shard_server,
            "servers": ",".join(servers),
            "device": self._device,
            **self._shared(name),
        }

    def _shared(self, name: str) -> dict[str, Any]:
        """What all processes of the run are told alike."""
        folder = self._folder
        config = folder.given if self._config.is_script and folder.given.exists() else folder.config
        return {"config": config, "token_file": folder.token, "report": folder.ports(name)}

    def _start(self, name: str, role: str, words: list[str]) -> Child:
        """A process of ours, with these words on its command line."""
        others = {"check": "worker.check", "evaluator": "worker.evaluator", "shard server": "sharder serve"}
        module = others.get(role, role).split()
        command = ["-m", f"paceline.{module[0]}", *module[1:], *words]
        is_short = role in ("sharder", "check")
        return self._begin(name, role, command, self._environment, 0 if is_short else self._config.restarts)

    def _begin(self, name: str, role: str, command: list[str], environment: Mapping[str, str], restarts: int) -> Child:
        forker = self._forkers.get(role)
        if forker is not None:
            self._wait_for(lambda: forker.is_ready)
        inherited = () if self._objects is None or role == "server" else (self._objects,)
        child = Child(name, role, command, self._folder.log(name), environment, restarts, forker, inherited)
        self._children.append(child)
        child.start()
        return child

    def _stage(self, what: str) -> None:
        """Says what begins, with the time since the launch."""
        self._say(f"{time.monotonic() - self._began:5.1f} s  {what}")

    # watching
    def _watch(self, server: Chief) -> None:
        """Follows the run until it is finished."""
        stall = Stall(time.monotonic())
        alone_since: float | None = None
        while True:
            status, now = server.status(), time.monotonic()
            if status is not None:
                self._note(status)
                if status.phase == "finished":
                    return
            stalled = stall.check(status, now)
            if stalled:
                self._say(stalled)
            alone_since = None if any(child.running for child in self._clients()) else alone_since or now
            if alone_since is not None and now - alone_since > self._config.score_timeout + FAREWELL:
                raise _Ended(
                    PacelineError.exit_code, "workers and evaluator have ended, but the servers never finished the run"
                )
            self._wait_for(partial(self._has_left, self._present()), POLL)

    def _note(self, status: StatusReply) -> None:
        """Takes in what the chief says."""
        rate, out = self._speed.note(status), self.outcome
        out.seconds = status.seconds
        out.examples = status.examples
        out.version = status.version
        out.reason = status.reason
        out.warnings = [*chief_status.warnings(status), *self._records.warnings]
        for line in self._news.of(out.warnings):
            self._say(line)
        out.scores = chief_status.scores(status)
        out.figures |= {worker.worker: dict(worker.figures) for worker in status.workers if worker.figures}
        if out.scores and out.scores[-1].final:
            final = out.scores[-1]
            out.metrics = final.metrics
            out.measure = final.measure
            out.scored = final.examples
            out.accuracy = accuracy(out.metrics)
        self._records.note(status, rate)
        self._show(status, rate)

    def _wait_for(self, ready: Callable[[], T], seconds: float = float("inf")) -> T | None:
        """Looks after the children until `ready` gives something, or None when the time is over. _Ended on a signal."""
        end = time.monotonic() + seconds
        while True:
            if self._signals.exit_code is not None:
                raise _Ended(self._signals.exit_code, "stopped on request")
            self._attend()
            found = ready()
            left = end - time.monotonic()
            if found or left <= 0:
                return found or None
            time.sleep(min(TICK, left))

    def _let_end(self) -> None:
        """Workers leave and the evaluator writes the model; a signal cuts that short."""
        end = time.monotonic() + FAREWELL
        while any(child.running for child in self._clients()) and time.monotonic() < end and not self._signals.seen:
            time.sleep(0.05)
        for child in self._clients():
            if child.role == "evaluator" and child.poll():
                how = f"{child.name} {child.how_it_ended()} after the end; its model may be missing"
                self._say(f"{how}. It said:{child.tail()}")

    def _attend(self) -> None:
        """Names dead children and starts them again where that can help; shows what a script prints."""
        self._tell_printed()
        try:
            self._others.attend(self._children)
        except PacelineError as error:
            raise _Ended(error.exit_code, str(error)) from error
        for child in self._children:
            code = child.poll()
            if code is None or child.given_up or (code == 0 and child.role != "server"):
                continue
            self._died(child, code)

    def _tell_printed(self) -> None:
        for each in self._printed:
            each.tell()

    def _died(self, child: Child, code: int) -> None:
        what = f"{child.name} {child.how_it_ended()}"
        if code in HOPELESS or child.role in ("sharder", "check"):
            reason = child.sentence() or f"{what}. It said:{child.tail()}"
            raise _Ended(code if code > 0 else PacelineError.exit_code, reason)
        if self._is_unheard and child.role == "worker" and code > 0:
            reason = f"{what} before it had begun to train.{child.tail()}"
            raise _Ended(ConfigError.exit_code if code == 1 else code, reason)
        if child.role == "worker" and not self._has_begun and (again := self._crashes.repeated(child, code)):
            raise _Ended(Crashes.exit_code(code), again)
        if child.restarts_left:
            child.restarts_left -= 1
            self._say(f"{what}; starting it again ({child.restarts_left} restarts left). Its last lines:{child.tail()}")
            child.start()
            self._folder.write_facts(pids=self._pids())
            return
        child.given_up = True
        workers = [other for other in self._children if other.role == "worker"]
        if child.role != "worker" or (all(worker.given_up for worker in workers) and not self._others.awaited()):
            last = "the last worker, " if child.role == "worker" else ""
            raise _Ended(
                code if code > 0 else PacelineError.exit_code,
                f"{last}{what}, and has no restarts left. Its last lines:{child.tail()}",
            )
        self._say(f"{what} and has no restarts left; the others go on without it. Its last lines:{child.tail()}")

    # looking things up
    @property
    def _is_unheard(self) -> bool:
        """Whether no script has said yet what it wants."""
        return self._config.is_script and described(self._folder.server(0)) is None

    def _present(self) -> int:
        """How many workers and evaluators run."""
        return sum(child.running for child in self._clients())

    def _has_left(self, before: int) -> bool:
        """Whether one of them has ended: the run may be over."""
        return self._present() < before

    def _clients(self) -> list[Child]:
        return [child for child in self._children if child.role in ("worker", "evaluator")]

    def _pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in self._children if child.pid is not None and child.running}

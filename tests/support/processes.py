"""Real processes for tests: starts servers, workers, evaluator and sharder as the launcher does, and ends them all."""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
import yaml

from paceline.core.settings.config import Config
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import SliceState
from paceline.launch.forks import forker as forkers
from paceline.launch.forks.forker import OPTIMIZER, SCRIPTS, Forked, Forker, Loads
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.server.state_folder import StateFolder
from paceline.v1 import run_service_pb2 as pb
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from tests.support.ports import own_port

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
"""Longest wait for anything that must happen (seconds); generous, because several suites may share two cores."""
TOKEN = "a-long-random-word"
NUMPY_WORKER = Path(__file__).with_name("numpy_worker.py")
QUIET = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
"""Read while modules load: no pool of threads that a fork would lose."""
LIGHT = (
    "grpc_health.v1.health",
    "paceline.core.optimizers.optimizer_loops",
    "paceline.server.server",
    "paceline.sharder.serve",
    "paceline.sharder.sharding",
    "paceline.sharder.strategies.random",
    "paceline.tasks.builtin.digits",
    "paceline.worker.exchange.parameter_client",
    "paceline.worker.membership.member",
    "paceline.worker.startup.streamed_shards",
    "paceline.worker.startup.run_process",
    "paceline.worker.training.status_and_metrics",
    "paceline.worker.training.emulated_slowness",
    "paceline.worker.training.step_result",
    "pydantic.type_adapter",
    "sklearn.datasets",
    "sklearn.model_selection",
    "typer.rich_utils",
)
"""What a forker loads for servers, sharders and workers in numpy, whose replica is not the real one."""
TORCH = (
    *SCRIPTS,
    *OPTIMIZER,
    "paceline.cli.run",
    "paceline.worker.module_worker",
    "paceline.worker.linear.linear_worker",
    "paceline.worker.scoring.linear_scorer",
    "paceline.worker.scoring.module_scorer",
    "paceline.worker.training.model_and_gradient",
)
"""What another one loads besides: for real workers, evaluators, and commands and scripts that start them, too."""


forkers._PATIENCE = PATIENCE  # a fork that takes longer costs the process that forks its life
_FORKERS: list[Forker] = []


def forker_of(modules: tuple[str, ...]) -> Forker:
    """The one of this test process that has loaded these, or another one where that is gone: a test that has lost it should be
    the only one that fails. Its children find `tests` also where only the package is installed."""
    if not _FORKERS or any(forker.is_ready and forker.is_gone for forker in _FORKERS):
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
        paths = os.pathsep.join([str(ROOT), *filter(None, [plain.get("PYTHONPATH")])])
        environment = plain | QUIET | {"PYTHONPATH": paths}
        first = Forker(Loads(LIGHT), environment)
        _FORKERS[:] = [first, Forker(Loads(TORCH), environment, first)]
        for one in _FORKERS:
            atexit.register(one.close)  # the second one first, so that its CPU time counts
    return _FORKERS[modules is TORCH]


def eventually(
    found: Callable[[], T | None], what: Callable[[], str] | str = "see the traceback", patience: float = PATIENCE
) -> T:
    """The first true result of `found`; AssertionError with `what` when it does not come."""
    deadline = time.monotonic() + patience
    while not (result := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return result


class Process:
    """One child process with its log; of a new Python, or forked by one that has imported everything."""

    def __init__(
        self, name: str, arguments: list[Any], folder: Path, environment: dict[str, str], forker: Forker | None = None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.{len(list(folder.glob(f'{name}.*.log')))}.log"
        words = [str(word) for word in arguments]
        self._process: subprocess.Popen[bytes] | Forked
        if forker is not None:
            self.log.touch()
            forked = forker.start(words, self.log, folder, environment)
            assert forked is not None, "the process that forks has ended; see what it wrote to stderr"
            self._process = forked
            return
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env=environment,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: int) -> None:
        """Sends a signal. A process that has ended may be gone before it is known here."""
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def wait(self, patience: float = PATIENCE) -> int:
        """The exit code, once it has ended by itself."""
        eventually(lambda: not self.is_running, lambda: f"the end of {self.name}\n{self.text()}", patience)
        return self._process.wait(0)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def events(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        """Its log's lines of this event that have these facts."""
        found = []
        for line in self.text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                entry = json.loads(line)
                if entry.get("event") == event and facts.items() <= entry.items():
                    found.append(entry)
        return found

    def wait_for(self, event: str, **facts: Any) -> dict[str, Any]:
        """The first such line, once it exists."""

        def found() -> dict[str, Any] | None:
            seen = self.events(event, **facts)
            assert seen or self.is_running, f"{self.name} ended without '{event}':\n{self.text()}"
            return seen[0] if seen else None

        entry: dict[str, Any] = eventually(found, lambda: f"'{event}' {facts} of {self.name}:\n{self.text()}")
        return entry


class Cluster:
    """The processes of one run in one folder; leaving the block ends them all by their process id."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "task": "digits",
            "workers": 2,
            "servers": 2,
            "policy": {"name": "bsp"},
            "heartbeat": 0.5,
            "lease": 15,
            "schedule": {"lr_scale": "none"},
            "batch": "worker",
        }
        own = Config().model_dump(mode="json", include={"epochs", "batch_size", "optimizer"})  # not the task's
        defaults = own | defaults
        self.folder = folder
        self.settings = defaults | settings
        self.processes: list[Process] = []
        self.addresses: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.environment: dict[str, str] = {}
        """What its processes have besides."""
        self.server_program: list[Any] = ["-m", "paceline.server"]
        self.config = folder / "config.yaml"
        self.token = folder / "token"
        self.shards = folder / "shards"
        self.config.write_text(yaml.safe_dump(self.settings))
        self.token.write_text(TOKEN)
        self.held_at: int | None = None
        self._chief: RunServiceStub | None = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.is_running:
                process.kill()

    # starting
    def start(self, name: str, *arguments: Any, mode: str = "") -> Process:
        """A Python process of this cluster."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
        own = QUIET | {"NUMPY_WORKER": mode}
        real = {"paceline.worker", "paceline.worker.evaluator"} & {*map(str, arguments[:2])}
        forker = forker_of(TORCH if real else LIGHT)
        process = Process(name, self.words(name, arguments), self.folder, inherited | own | self.environment, forker)
        self.processes.append(process)
        return process

    def words(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """What is run for the process of this name."""
        return list(arguments)

    def sharder(self, *more: Any) -> Process:
        return self.start("sharder", "-m", "paceline.sharder", "--config", self.config, "--out", self.shards, *more)

    def server(self, index: int, *more: Any) -> Process:
        """A server, of this cluster's program; one that ran before comes back on its port and in its folder."""
        port = self.addresses[index].rpartition(":")[2] if index < len(self.addresses) else own_port()
        chief = ["--chief", self.addresses[0]] if index else []
        report = self.folder / f"ports-{index}.json"
        report.unlink(missing_ok=True)
        return self.start(
            f"server-{index}",
            *self.server_program,
            "--config",
            self.config,
            "--index",
            index,
            *chief,
            "--port",
            port,
            "--folder",
            self.folder / f"s{index}",
            "--token-file",
            self.token,
            "--report",
            report,
            *more,
        )

    def listening(self, index: int, process: Process) -> Process:
        """Waits until the server has told its port."""
        report = self.folder / f"ports-{index}.json"
        eventually(lambda: report.exists() or not process.is_running, lambda: f"ports of {process.text()}")
        assert report.exists(), process.text()
        address = f"localhost:{json.loads(report.read_text())['port']}"
        self.addresses[index : index + 1] = [address]
        return process

    def servers(self) -> list[Process]:
        """All servers, listening: the chief first, since the others need its address."""
        chief = self.listening(0, self.server(0))
        others = {index: self.server(index) for index in range(1, self.settings["servers"])}
        return [chief, *(self.listening(index, process) for index, process in others.items())]

    def worker(
        self, rank: int, *more: Any, torch: bool = False, mode: str = "softmax", program: Path = NUMPY_WORKER
    ) -> Process:
        """A worker: the real one, or its loop around a replica in numpy (or in another program) that starts faster."""
        words = ["-m", "paceline.worker", "--device", "cpu"] if torch else [program]
        return self.start(f"worker-{rank}", *words, *self._whereabouts(), "--rank", rank, *more, mode=mode)

    def evaluator(self, *more: Any) -> Process:
        return self.start(
            "evaluator",
            "-m",
            "paceline.worker.evaluator",
            *self._whereabouts(),
            "--models",
            self.folder / "models",
            "--device",
            "cpu",
            *more,
        )

    def _whereabouts(self) -> list[Any]:
        """What workers and the evaluator both get."""
        servers = ",".join(self.addresses)
        return ["--config", self.config, "--shards", self.shards, "--servers", servers, "--token-file", self.token]

    # playing the evaluator, and asking the chief
    @property
    def chief(self) -> RunServiceStub:
        if self._chief is None:
            self._chief = RunServiceStub(open_channel(self.addresses[0], Credentials(TOKEN)))
        return self._chief

    def hold(self, clock: int | None) -> None:
        """Lets workers in numpy come to this clock and no further, so that a run does not end before the test has done to it
        what it is for; None: lets them go on. Their bits are the same."""
        file, self.held_at = self.folder / "hold", clock
        if clock is None:
            file.unlink(missing_ok=True)
            return
        new = file.with_suffix(".new")
        new.write_text(str(clock))
        new.replace(file)

    def ready(self) -> None:
        """Says that the evaluation data is ready, so that the run may start; the chief lets its answer wait until there
        is something to score."""
        call = self.chief.Evaluate.future(pb.EvaluateRequest(protocol=PROTOCOL), timeout=PATIENCE, wait_for_ready=True)
        self.until(lambda status: call.done() or not any("the evaluator" in words for words in status.missing))
        assert not call.done() or call.exception() is None, call.exception()

    def status(self) -> pb.StatusReply | None:
        """Where the run is; None while the chief is away."""
        try:
            status: pb.StatusReply = self.chief.Status(pb.StatusRequest(), timeout=5)
        except grpc.RpcError:
            return None
        return status

    def until(self, reached: Callable[[pb.StatusReply], Any]) -> pb.StatusReply:
        """The first status that is so."""
        last: list[pb.StatusReply | None] = [None]

        def found() -> pb.StatusReply | None:
            last[0] = self.status()
            return last[0] if last[0] is not None and reached(last[0]) else None

        return eventually(found, lambda: f"status {last[0]}\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(f"== {process.log.name}\n{process.text()[-1500:]}" for process in self.processes)

    def stop(self) -> None:
        """Names the last clocks, as soon as the chief knows how far its members are."""

        def is_stopped() -> bool:
            try:
                self.chief.Stop(pb.StopRequest(reason="the test has seen enough"), timeout=10)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
            return True

        eventually(is_stopped, "the chief's word that it stops")

    def finish(self) -> None:
        """Waits until all workers have left, reports the final score and ends the servers, which must exit with 0."""
        self.score()
        self.end_servers(0)

    def score(self) -> pb.StatusReply:
        """Waits until all workers have left and reports the final score; returns what the status was before that."""
        status = self.until(lambda status: phase_of(status) == "scoring")
        final = pb.EvaluateRequest(protocol=PROTOCOL, score=pb.Score(final=True))
        self.chief.Evaluate(final, timeout=PATIENCE, wait_for_ready=True)
        return status

    def end_servers(self, code: int) -> None:
        """SIGTERM to the servers that run; each has to exit with the code."""
        running = [process for process in self.processes if process.name.startswith("server") and process.is_running]
        if code == 0:
            for process in running:
                process.wait_for("phase", phase="finished")
        for process in running:
            process.send(signal.SIGTERM)
        assert [process.wait() for process in running] == [code] * len(running)

    def states(self) -> list[tuple[SlicePlan, SliceState]]:
        """The newest snapshot of every server; the servers must have ended."""
        found = []
        for index in range(self.settings["servers"]):
            folder = StateFolder(self.folder / f"s{index}", 3, lambda event, **facts: None)
            snapshot = folder.newest_snapshot()
            folder.close()
            assert snapshot is not None
            found.append(snapshot)
        return found

"""Runs one server from start to end: opens its folder, serves its slice, follows the chief or is it, and stops on a signal."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.errors import ConfigError, DataError, DiskError, ServersGone, Stopped, TooNew, TryAgain
from paceline.core.optimizers.effective import settings_lines as rates_told
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.rpc.agreed_settings import agreed_defaults, agreed_settings
from paceline.rpc.auth import OPEN, Credentials, authentication
from paceline.rpc.grpc_plane import SERVICE, GrpcServicer
from paceline.rpc.host import Health, bind, make_server
from paceline.rpc.lane.call import parameter_routes
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.listening import PLAIN_TEXT, is_loopback
from paceline.rpc.malloc import tune_malloc
from paceline.rpc.process import make_log, report_ports, serve_metrics, stop_on_notice, stop_on_signals
from paceline.rpc.self_inflicted import inflict_own, told_by
from paceline.rpc.shares import READERS, SHARE, Shares
from paceline.rpc.watchdog import Watchdog
from paceline.server.chief import Chief
from paceline.server.command_line import ToldServer
from paceline.server.common_versions import CommonVersions
from paceline.server.fetched_snapshots import FetchedSnapshots
from paceline.server.follower import Follower
from paceline.server.json_files import Owner, understood
from paceline.server.metrics import ServerMetrics
from paceline.server.outgoing_weights import OutgoingWeights
from paceline.server.own_figures import OwnFigures, ServerStart
from paceline.server.parameter_servicer import ParameterServicer, Quarantine
from paceline.server.run_servicer import RunServicer
from paceline.server.script_settings import ScriptServicer, await_description
from paceline.server.sent_snapshots import SentSnapshots, Superseded
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder
from paceline.v1 import parameter_service_pb2, run_service_pb2
from paceline.v1.run_service_pb2_grpc import add_RunServiceServicer_to_server
from paceline.v1.script_service_pb2_grpc import add_ScriptServiceServicer_to_server

_REFUSED = 32
"""Threads for calls that the gate refuses at once."""


class Server:
    """One server with all its parts; several fit in one process for tests."""

    def __init__(
        self,
        config: Config,
        told: ToldServer,
        credentials: Credentials = OPEN,
        say: Callable[..., None] = lambda event, **facts: None,
        stop: threading.Event | None = None,
    ) -> None:
        """`stop`: ends the start, too, while it fetches snapshots."""
        index = told.index
        if not 0 <= index < config.server_processes:
            raise ConfigError(
                f"Server {index} of {config.servers}: the index goes from 0 to {config.server_processes - 1}. On Kubernetes a "
                "run keeps its number of servers: scale the StatefulSet back."
            )
        if index and not told.chief:
            raise ConfigError(f"Server {index} needs the chief's address: --chief HOST:PORT.")
        is_plain = credentials.tls is None and not is_loopback(told.bind)
        if is_plain:
            say(PLAIN_TEXT)
        self.registry = CollectorRegistry()
        metrics = ServerMetrics(
            self.registry,
            config.policy.name,
            config.task,
            config.transport,
            is_plain,
        )
        owner = Owner(config.run or "", index, config.servers)
        self.folder, self._sent = _opened(config, told.folder, owner, say, stop or threading.Event())
        self.folder.check_settings(agreed_settings(config), agreed_defaults(config))
        self.driver = SliceDriver(config, index, self.folder.term, metrics)
        start = self._restore(say)
        metrics.damaged.inc(start.damaged)
        metrics.follow_disk(told.folder)
        self._snapshots = Snapshots(self.driver, self.folder, config.checkpoint.every, metrics, say, self._sent)
        # As many threads as all callers may have calls, each begun when it is needed first, and some for refusals.
        processes = config.workers + config.servers
        threads = SHARE["worker"] * (processes + 1) + READERS + _REFUSED
        shares, run_service = Shares(processes), run_service_pb2.DESCRIPTOR.services_by_name["RunService"].full_name
        self._grpc = make_server(threads, authentication(credentials), metrics.call, shares, apart=[run_service])
        self._watchdog = Watchdog()
        quarantine = Quarantine(self.folder.strikes(), self.folder.save_strikes)
        weights = OutgoingWeights(self.driver, told.folder)
        servicer = ParameterServicer(self.driver, self._snapshots, metrics, say, quarantine, weights)
        GrpcServicer(servicer, self._watchdog).add_to(self._grpc)
        self.lane: LaneServer | None = None
        if config.transport == "lane":
            self.lane = LaneServer(
                parameter_routes(servicer),
                threads,
                authentication(credentials),
                metrics.call,
                self._watchdog,
                told.lane_port,
                credentials.tls,
                host=told.bind,
                shares=shares,
            )
            self.registry.register(self.lane.traffic)
            servicer.lane_port = self.lane.port
        if config.is_script:
            add_ScriptServiceServicer_to_server(ScriptServicer(told, is_ready=True), self._grpc)
        figures = OwnFigures(self.driver, self._snapshots)
        self.chief: Chief | None = None
        self._follower: Follower | None = None
        names = [SERVICE, reflection.SERVICE_NAME]
        if index == 0:
            self.chief = Chief(Run(config), self.driver, self.folder, self._snapshots, say, start, figures)
            add_RunServiceServicer_to_server(RunServicer(self.chief, config, is_plain), self._grpc)
            names.append(run_service)
        else:
            versions = CommonVersions(self.driver, self.folder, self._snapshots, say)
            self._follower = Follower(self.driver, versions, told.chief, credentials, say, start, figures)
        assert parameter_service_pb2.DESCRIPTOR.services_by_name["ParameterService"].full_name == SERVICE
        spent, warned = (None, None) if self.chief is None else (self.chief.budget_spent, self.chief.warned)
        metrics.follow_run(lambda: self.phase, lambda: self.driver.lead, spent, warned)
        reflection.enable_server_reflection(names, self._grpc)
        self.port = bind(self._grpc, told.port, "gRPC", credentials.tls, told.bind)
        self.health = Health(told.health_port, told.bind)

    def start(self) -> None:
        """Starts to serve."""
        self._grpc.start()
        if self.lane is not None:
            self.lane.start()
        self._watchdog.start()
        self._snapshots.start()
        part = self.chief or self._follower
        assert part is not None
        part.start()
        self.health.serving(True)

    @property
    def phase(self) -> RunPhase:
        """The run's phase as this server knows it."""
        if self.chief is not None:
            return self.chief.run.phase
        assert self._follower is not None
        return self._follower.phase

    @property
    def refusal(self) -> Exception | None:
        """Why this server can't take part in the run any more."""
        part = self.chief or self._follower
        assert part is not None
        return part.refusal or self.driver.failure

    def drop_weights(self) -> bool:
        """After the run: saves the final state and frees the memory. Where the disk takes nothing it keeps it: False."""
        if not self._snapshots.write_now():
            return False
        self.driver.drop_weights()
        return True

    def save(self) -> None:
        """Writes the present state, and lets the store have it, while callers are still answered: the machine may be gone
        before the last of them is."""
        self._snapshots.write_now()

    @property
    def pause(self) -> float:
        """Seconds from one try to write a snapshot to the next one."""
        return self._snapshots.pause

    def close(self, grace: float) -> None:
        """Drains: refuses new calls, lets running ones end within `grace` seconds, saves the state."""
        self.health.serving(False)
        part = self.chief or self._follower
        assert part is not None
        stopped = self._grpc.stop(grace)
        if self.lane is not None:
            self.lane.stop(grace)
        stopped.wait()
        self._watchdog.stop()
        part.close()
        self._snapshots.close()
        self.health.stop()
        self.folder.close()

    def _restore(self, say: Callable[..., None]) -> ServerStart:
        found = self.folder.newest_snapshot()
        if found is None:
            return ServerStart(self.folder.term)
        plan, state = found
        config = self.driver.config
        if len(plan.slices) != config.server_processes:
            raise ConfigError(
                f"This run's model is cut for {len(plan.slices)} servers, but the config has servers: {config.servers}. "
                "Set it back. `paceline run` cuts a model for another number of servers, where it has all of their folders."
            )
        if self.driver.index == 0:
            self.folder.check_run(state.table["clocks"])
        with understood(self.folder.run_file.parent):
            is_safe = self._sent is None or self.folder.current in self._sent.numbers
            self.driver.restore(plan, state, is_safe)
        say(
            "back from a snapshot; workers send again, or compute again, what it lacks",
            term=self.folder.term,
            version=state.table["version"],
            clocks={w: entry["clock"] for w, entry in state.table["clocks"].items()},
        )
        return ServerStart(self.folder.term, state.table["version"], self.folder.passed_over)


def _opened(
    config: Config, folder: Path, owner: Owner, say: Callable[..., None], stop: threading.Event
) -> tuple[StateFolder, SentSnapshots | None]:
    """The server's folder, filled from the store where it is empty, and what sends its snapshots there. A store that does not
    answer ends only a start that needs it."""
    keep, url = config.checkpoint.keep, config.checkpoint.at
    if url is None:
        return StateFolder(folder, keep, say, owner), None
    fetched = FetchedSnapshots(url, owner, say, stop)
    opened = StateFolder(folder, keep, say, owner, fill=fetched.fill)
    opened.passed_over = fetched.damaged
    sent = SentSnapshots(url, owner, opened)
    try:
        sent.look()
    except (ServersGone, DiskError, DataError, ConfigError) as error:
        if isinstance(error, (Superseded, TooNew)) or not opened.versions:
            opened.close()
            raise
        say("can't use the store; goes on from the folder, and sends snapshots later", why=str(error))
    except BaseException:
        opened.close()
        raise
    return opened, sent


def serve(config: Config, told: ToldServer) -> int:
    """Runs a server until it receives a stop signal; returns the exit code."""
    # of a server's large arrays only a snapshot's copies come and go; in the heap they would leave holes that nothing fits in
    tune_malloc(kept=16 << 20)
    name = told.name
    credentials = replace(told.credentials(), memory=told.folder / "public-keys")
    say = make_log(name)
    stop, signals = stopping = stop_on_signals()
    if told.report is None:  # a launcher passes on what it gets
        stop_on_notice(stopping, say)
    if config.is_script:
        try:
            config, told = await_description(told, credentials, stop)
        except Stopped as stopped:
            say(str(stopped))
            return 130 if signal.SIGINT in signals else Stopped.exit_code
    credentials = credentials.named(told.role, name, config.run or "")
    server = Server(config, told, credentials, say, stop)
    guard, run = told.metrics_guard(credentials), config.run or ""
    metrics_port = serve_metrics(told.metrics_port, server.registry, told.bind, guard, run=run, process=name)
    server.start()
    gc.freeze()
    report_ports(told.report, port=server.port, metrics_port=metrics_port, health_port=server.health.port)
    if server.chief is not None:
        for line in rates_told(config, build_policy(config.policy)):
            say(line)
    if told.report is None:  # there is no launcher to do it
        seconds = server.chief.training_seconds if server.chief else told_by(told.chief, credentials)
        inflict_own(config, name, seconds, say, told.folder)
    say("serving", port=server.port, term=server.folder.term, folder=os.fspath(told.folder))
    while not stop.wait(1.0) and server.phase is not RunPhase.FINISHED:
        _end_where_refused(server)
    if server.phase is RunPhase.FINISHED:
        _end_where_refused(server)
        _idle(server, stop, say)
    finished = server.phase is RunPhase.FINISHED
    say("stopping", finished=finished)
    if not finished:
        server.save()
    server.close(grace=5.0)
    if finished:
        return 0
    return 130 if signal.SIGINT in signals else Stopped.exit_code


def _end_where_refused(server: Server) -> None:
    if (why := server.refusal) is not None:
        server.close(grace=0.0)
        raise why


def _idle(server: Server, stop: threading.Event, say: Callable[..., None]) -> None:
    """After the run, until the process has to stop. TryAgain where the run goes on."""
    is_kept = server.drop_weights()
    _end_where_refused(server)
    say(f"finished; the weights are {'on disk, idling' if is_kept else 'in memory until the disk takes them'}")
    if server.chief is not None and (found := server.chief.run.scoring.result) is not None:
        say(found)
    next_try = time.monotonic() + server.pause
    while not stop.wait(1.0):
        if server.phase is not RunPhase.FINISHED:  # the chief has been started with more epochs
            server.close(grace=0.0)
            raise TryAgain("The run, which was finished, goes on. This server starts again, with its weights.")
        _end_where_refused(server)
        if not is_kept and time.monotonic() >= next_try:
            next_try = time.monotonic() + server.pause
            if is_kept := server.drop_weights():
                say("the weights are on disk, idling")

"""`paceline join FILE`: lends this machine's workers to a run on a cluster, which they call from outside of it."""

import json
import os
import random
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path

import yaml

from paceline.core.errors import ConfigError, PacelineError, ServersGone, Stopped, Unauthenticated, UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.cluster_key import ClusterKey, refusal
from paceline.launch.other_machines.agent import EVERY, Offer, working
from paceline.launch.other_machines.own_work import OwnWork
from paceline.launch.other_machines.packed_files import SETTINGS
from paceline.launch.other_machines.private_folder import JOINER, private_folder
from paceline.launch.other_machines.reach_servers import ReachServers
from paceline.launch.settings.read_config import use_keys
from paceline.launch.status.chief_status import RemoteChief
from paceline.launch.supervise.children import printable
from paceline.launch.supervise.processes import HOPELESS
from paceline.launch.this_machine.signals import Signals
from paceline.rpc.auth import Credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.key_files import write_keys
from paceline.rpc.protocol_version import check_protocol
from paceline.tasks.task import load_config
from paceline.v1 import host_service_pb2 as pb
from paceline.v1.run_service_pb2 import StatusReply
from paceline.worker.membership.calls_to_chief import OVER

Say = Callable[[str], None]
RANKS = range(512, 1024)
"""Of workers from outside; pods count from 0."""
ANSWER = 15.0
"""Longest that the chief may take (seconds)."""
AT_FIRST, LATER = 60.0, 600.0
"""Longest that servers may be away before this machine has joined, and after that: their pods may move (seconds)."""
LOOK = 10.0
"""Seconds between two looks for them."""
_TRAINING = "training"
"""What a worker logs when it has a seat."""


def join(key: ClusterKey, offer: Offer, patience: float | None, say: Say) -> int:
    """Lends until the run ends, and returns 0, or the exit code of what has ended the workers before. Raises what keeps this
    machine out, ServersGone where a server can't be reached for `patience` seconds (None: `AT_FIRST`, `LATER`), Stopped
    where the run was over."""
    if offer.servers:
        raise UsageError(f"-s {offer.servers}: the servers of a run on Kubernetes are pods; lend workers (-w) only.")
    check_protocol(key.protocol, f"run {key.run}", "this machine")
    with Signals(say) as signals, ExitStack() as stack:
        folder = stack.enter_context(private_folder(JOINER))
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)  # a file of the key's comes before one of the same name here
        config = unpacked(key, folder)
        at_first = AT_FIRST if patience is None else patience
        _reach(key, at_first, say, signals)
        status = _run_status(key, Credentials(key.token, folder / "keys"), at_first, say, signals)
        ranks = free_ranks(offer.workers, {one.worker for one in status.workers} | set(status.queued))
        say(f"joined run {key.run} at {key.servers[0]} as host {offer.name}")
        here = "127.0.0.1"  # nobody calls
        work = stack.enter_context(working(folder, config, offer, offer.name, here, here, say, signals))
        servers = StillThere(key, LATER if patience is None else patience)
        return Stay(work, orders(key, ranks), config.restarts, say, signals, servers.check).last()


def unpacked(key: ClusterKey, folder: Path) -> Config:
    """Puts all that workers need into an empty folder of this user's; the run's settings. ConfigError where workers from
    outside can't take part, UsageError where the key would write elsewhere."""
    for name, text in key.files.items():
        place = (folder / name).resolve()
        if not place.is_relative_to(folder.resolve()):
            raise UsageError(f"The key names a file {name!r}, which lies elsewhere; nothing was started.")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    use_keys(write_keys(folder / "keys", key.authority.encode(), key.certificate.encode(), key.key.encode()))
    settings = key.settings() | {"transport": "grpc"}  # the lane's port is open within the cluster only
    if (folder / str(settings.get("task", ""))).is_file():
        settings["task"] = str(folder / settings["task"])
    (folder / SETTINGS).write_text(yaml.safe_dump(settings, sort_keys=False))
    config = load_config(folder / SETTINGS, own_file=False)
    if why := refusal(config):
        raise ConfigError(why)
    return config


def free_ranks(count: int, taken: Collection[str]) -> list[int]:
    """Numbers that no worker of the run has; at random, since two machines may join at the same time. UsageError: too many."""
    free = [rank for rank in RANKS if f"worker-{rank}" not in taken]
    if count > len(free):
        raise UsageError(f"-w {count}: the run takes {len(free)} more workers from outside; lend fewer.")
    return sorted(random.sample(free, count))


def orders(key: ClusterKey, ranks: Collection[int]) -> list[pb.ChildOrder]:
    """To start a worker of each number."""
    return [
        pb.ChildOrder(
            name=f"worker-{rank}",
            role=pb.PROCESS_ROLE_WORKER,
            start=1,
            arguments=pb.ProcessArguments(number=rank, servers=key.servers, shard_server=key.shard_server),
            token=key.token,
        )
        for rank in ranks
    ]


def _todo(key: ClusterKey) -> str:
    return (
        f"Is run {key.run} still training, does a firewall let these ports in, and does the key have the address under which "
        "this machine reaches the cluster (paceline k8s key --address)?"
    )


def _check_going(signals: Signals) -> None:
    """Stopped after Ctrl-C and the like."""
    if signals.exit_code is not None:
        raise Stopped("The process got a signal to stop.")


def _reach(key: ClusterKey, patience: float, say: Say, signals: Signals) -> None:
    """Waits until all servers accept connections; says at once what keeps it waiting. ServersGone: they don't."""
    todo = _todo(key)
    reach = ReachServers([address for address in (*key.servers, key.shard_server) if address], todo)
    said = ""
    while not reach.is_done:
        _check_going(signals)
        trouble = reach.trouble
        if trouble and not said:
            say(said := trouble)
        if reach.waited > patience:
            raise ServersGone(f"For {reach.waited:.0f} s {trouble or todo}")
        time.sleep(EVERY)


def _run_status(key: ClusterKey, credentials: Credentials, patience: float, say: Say, signals: Signals) -> StatusReply:
    """Where the run is, as the chief says; one on a busy node is asked again. Unauthenticated: the key is not, or no more,
    this run's; Stopped: it is over; ServersGone: no answer."""
    chief, began, said = RemoteChief(key.servers[0], credentials, ANSWER), time.monotonic(), False
    try:
        while (status := chief.status()) is None:
            _check_going(signals)
            trouble = f"server 0 of run {key.run} at {key.servers[0]} does not answer ({chief.why})"
            if (waited := time.monotonic() - began) > patience:
                raise ServersGone(f"For {waited:.0f} s {trouble}. Is the run still training?")
            if not said:
                say(f"{trouble}; asking again, for {patience:.0f} s in all")
                said = True
            time.sleep(EVERY)
    except Unauthenticated as error:
        raise Unauthenticated(
            f"This key does not open the run at {key.servers[0]}: it is of another run, or its token or certificate has been "
            f"changed since. Ask for a new one (paceline k8s key). The server said: {error}"
        ) from error
    finally:
        chief.close()
    if phase_of(status) in OVER:
        raise Stopped(f"Run '{key.run}' is over ({status.reason or 'finished'}); no machine can join it any more.")
    return status


class StillThere:
    """Looks again and again whether servers can be reached: without them, workers would wait until the run's `deadline`."""

    def __init__(self, key: ClusterKey, patience: float) -> None:
        self._key = key
        self._patience = patience
        self._looked = -LOOK
        self._reach: ReachServers | None = None

    def check(self) -> None:
        """ServersGone where one could not be for `patience` seconds."""
        if (self._reach is None or self._reach.is_done) and time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            self._reach = ReachServers(self._key.servers, _todo(self._key))
        if self._reach is not None and self._reach.trouble and self._reach.waited > self._patience:
            raise ServersGone(f"For {self._reach.waited:.0f} s {self._reach.trouble}")


class Stay:
    """The time between joining and going. Of one thread."""

    def __init__(
        self,
        work: OwnWork,
        wanted: Collection[pb.ChildOrder],
        restarts: int,
        say: Say,
        signals: Signals,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`restarts`: how often each worker is started again after a crash; `check`: raises what ends the stay."""
        self._check = check
        self._work = work
        self._orders = {order.name: order for order in wanted}
        self._restarts = restarts
        self._say = say
        self._signals = signals
        self._code = 0
        self._cut: dict[str, bytes] = {}
        """The beginning of each worker's next line."""
        self._told: dict[str, str] = {}

    def last(self) -> int:
        """Until all workers have ended, or a signal; the exit code."""
        while self._orders:
            if self._signals.exit_code is not None:
                self._say("leaving the run")
                self._work.end(self._signals.hurry)
                self._look()
                return self._signals.exit_code
            self._work.carry_out(list(self._orders.values()))
            self._look()
            self._check()
            time.sleep(EVERY)
        if not self._code:
            self._say("the run is over")
        return self._code

    def _look(self) -> None:
        for report in self._work.reports():
            order = self._orders.get(report.name)
            if order is not None and report.start == order.start:
                order.log_size = report.log_from + len(report.log)
                self._tell(report.name, report.log)
                if report.HasField("code") and self._signals.exit_code is None:
                    self._ended(order, report)

    def _ended(self, order: pb.ChildOrder, report: pb.ChildReport) -> None:
        """It has finished, or is started again unless that would not help."""
        if report.code and report.code not in HOPELESS and order.start <= self._restarts:
            self._say(f"{order.name} {report.ended}; it is started again")
            order.start += 1
            return
        if report.code:
            self._say(f"{order.name} {report.ended}; it is not started again")
            self._code = report.code if report.code > 0 else PacelineError.exit_code
        del self._orders[order.name]

    def _tell(self, name: str, log: bytes) -> None:
        """What of a worker's log people must know, each once in a row."""
        *lines, self._cut[name] = (self._cut.get(name, b"") + log).split(b"\n")
        for line in lines:
            told = words(line.decode(errors="replace"))
            if told and told != self._told.get(name):
                self._told[name] = told
                self._say(f"{name}: {told}")


def words(line: str) -> str:
    """A line of a worker's log for people: what keeps it waiting, that it trains, and what is no event; empty: nothing."""
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict) and "event" in event:
            why = f": {event['why']}" if "why" in event else ""
            return f"{event['event']}{why}" if why or event["event"] == _TRAINING else ""
    return printable(line)

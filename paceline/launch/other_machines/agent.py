"""`paceline join`: lends this machine's processes to a run of another one, as many as asked for or as it can bear, and goes
with that run."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from paceline.base.variables import KEY
from paceline.core.errors import DataError, PoolFull, ServersGone, TryAgain, UsageError
from paceline.core.settings.config import Config
from paceline.launch.forks.run_forkers import forking
from paceline.launch.other_machines.door import versions
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.own_work import HostFacts, OwnWork
from paceline.launch.other_machines.packed_files import MOST_SENT, SETTINGS, script_folder, unpack
from paceline.launch.other_machines.private_folder import JOINER, private_folder
from paceline.launch.other_machines.reach_head import Head, metadata, reach
from paceline.launch.other_machines.slurm import SlurmTask
from paceline.launch.settings.read_config import use_keys
from paceline.launch.this_machine.processors import cores, threads_each, visible_gpus
from paceline.launch.this_machine.signals import Signals
from paceline.rpc.channel import translated
from paceline.rpc.key_files import write_keys
from paceline.rpc.protocol_version import PROTOCOL
from paceline.settings.load_settings import read_yaml
from paceline.v1 import host_service_pb2 as pb
from paceline.v1.host_service_pb2_grpc import HostServiceStub

EVERY = 0.25
"""Seconds between two reports."""
PATIENCE = 60.0
"""Longest that the head may be away (seconds)."""
CALL = 5.0
"""Longest that a report may take (seconds)."""
FETCH = 600.0
"""Longest that fetching the script's folder may take, or sending a model (seconds)."""
_TRIES, _AGAIN = 8, 2.0
"""How often a machine asks for a seat, and how long it waits in between (seconds): longer than a dead one holds it."""
_PART = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What this machine lends."""

    name: str
    workers: int
    servers: int
    address: str = ""
    """Under which others reach it; empty: where its calls come from."""
    device: str = "auto"
    cpus: int | None = None
    """For all workers; None: all cores that this process may use."""


class HeadCalls:
    """The head's door, as this machine calls it."""

    def __init__(self, head: Head, key: JoinKey) -> None:
        self._stub = HostServiceStub(head.channel)
        self._metadata = metadata(key)

    def join(self, offer: Offer) -> pb.HostServiceJoinReply:
        request = pb.HostServiceJoinRequest(
            protocol=PROTOCOL,
            name=offer.name,
            workers=offer.workers,
            servers=offer.servers,
            address=offer.address,
            versions=versions(),
        )
        reply: pb.HostServiceJoinReply = self._called(self._stub.Join, request)
        return reply

    def files(self, host: int) -> bytes:
        request = pb.HostServiceFilesRequest(host=host)
        try:
            parts, found = self._stub.Files(request, timeout=FETCH, metadata=self._metadata), bytearray()
            for part in parts:
                found += part.data
                if len(found) > MOST_SENT:
                    parts.cancel()
                    raise DataError(
                        f"The head sent more than {MOST_SENT:,} bytes of files, the most that a machine takes; nothing was "
                        "started. Does the head have the same release as this machine?"
                    )
            return bytes(found)
        except grpc.RpcError as error:
            raise translated(error) from None

    def keep(self, host: int, model: Path) -> None:
        """Sends a model for the run's folder."""

        def parts() -> Iterator[pb.HostServiceKeepRequest]:
            yield pb.HostServiceKeepRequest(host=host, name=model.name)
            with model.open("rb") as file:
                while data := file.read(_PART):
                    yield pb.HostServiceKeepRequest(host=host, data=data)

        try:
            self._stub.Keep(parts(), timeout=FETCH, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translated(error) from None

    def report(self, request: pb.HostServiceReportRequest) -> pb.HostServiceReportReply:
        reply: pb.HostServiceReportReply = self._called(self._stub.Report, request)
        return reply

    def _called(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=CALL, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translated(error) from None


def join(where: tuple[str, int], key: JoinKey, offer: Offer, patience: float, say: Callable[[str], None]) -> int:
    """Lends until the run ends, and returns its exit code. Raises what keeps this machine out, ServersGone where the head has
    not answered for `patience` seconds, Stopped where the run was over."""
    with Signals(say) as signals:
        while True:
            code = _lend(where, key, offer, patience, say, signals)
            if code is not None:
                return code
            say("the run does not know this machine any more, since it was silent for too long; joining again")


def _lend(
    where: tuple[str, int], key: JoinKey, offer: Offer, patience: float, say: Callable[[str], None], signals: Signals
) -> int | None:
    """One stay with a run; None where the head has forgotten this host."""
    head = reach(*where, key)
    with ExitStack() as stack:
        stack.callback(head.channel.close)
        calls = HeadCalls(head, key)
        folder = stack.enter_context(private_folder(JOINER))
        joined = seated(calls, offer, say, signals)
        say(f"joined run {joined.run} at {where[0]}:{where[1]} as host {joined.name}")
        for difference in joined.differences:
            say(f"note: {difference}")
        unpack(calls.files(joined.host), folder)
        use_keys(write_keys(folder / "keys", joined.authority, joined.certificate, joined.key))
        config = Config.model_validate(read_yaml(folder / SETTINGS))
        work = stack.enter_context(
            working(folder, config, offer, joined.name, head.address, joined.address, say, signals)
        )
        return _Stay(calls, joined.host, work, patience, say, signals).last()


@contextmanager
def working(
    folder: Path,
    config: Config,
    offer: Offer,
    name: str,
    head: str,
    address: str,
    say: Callable[[str], None],
    signals: Signals,
) -> Iterator[OwnWork]:
    """What carries out a run's orders on this machine, in the folder of the run's script; ends its processes afterwards.
    `folder`: with all that they need; `name`, `head`, `address`: of this machine in the run, and as in `Place`."""
    before = Path.cwd()
    with ExitStack() as stack:
        os.chdir(script_folder(config, folder))
        stack.callback(os.chdir, before)
        place = HostFacts(
            folder=folder,
            config=config,
            head=head,
            address=address,
            name=name,
            device=offer.device,
            threads=threads_each(offer.workers, offer.cpus),
            forkers=stack.enter_context(forking(config)),
        )
        work = OwnWork(place, say)
        stack.callback(work.end, signals.hurry)
        yield work


def seated(
    calls: HeadCalls,
    offer: Offer,
    say: Callable[[str], None],
    signals: Signals,
    sleep: Callable[[float], None] = time.sleep,
) -> pb.HostServiceJoinReply:
    """What the head answers; a machine that has died may hold the seat a little longer. PoolFull where it does not."""
    asked = 0
    while True:
        try:
            return calls.join(offer)
        except PoolFull as error:
            asked += 1
            if asked == _TRIES or signals.exit_code is not None:
                raise
            if asked == 1:
                say(f"{error} Trying again for {_TRIES * _AGAIN:.0f} s, since one that has just died still counts.")
        sleep(_AGAIN)


class _Stay:
    """The time between joining and going."""

    def __init__(
        self,
        calls: HeadCalls,
        host: int,
        work: OwnWork,
        patience: float,
        say: Callable[[str], None],
        signals: Signals,
    ) -> None:
        self._calls = calls
        self._host = host
        self._work = work
        self._patience = patience
        self._say = say
        self._signals = signals
        self._heard = time.monotonic()
        self._why = ""
        self._trouble = ""
        self._kept: dict[str, int] = {}
        """When each model that the head has was written (ns)."""

    def last(self) -> int | None:
        """Until the run's end, a signal, or the head's; the exit code, None where the head has forgotten this host."""
        while self._signals.exit_code is None:
            reply = self._report()
            if reply is not None and (reply.is_over or reply.is_unknown):
                return self._over(reply) if reply.is_over else None
            if reply is not None:
                self._work.carry_out(reply.children)
            self._check_reach()
            silent = time.monotonic() - self._heard
            if silent > self._patience:
                raise ServersGone(
                    f"The head has not answered for {silent:.0f} s ({self._why}): the head or the network is "
                    "gone. Paceline ended the processes here. If the run still trains, join again."
                )
            time.sleep(EVERY)
        return self._leave(self._signals.exit_code)

    def _check_reach(self) -> None:
        """Says what keeps the workers from starting. ServersGone once that has lasted too long."""
        reach = self._work.reach
        trouble = "" if reach is None else reach.trouble
        if trouble and not self._trouble:
            self._say(trouble)
        self._trouble = trouble
        if reach is not None and trouble and reach.waited > self._patience:
            self._report(leaving=True)
            raise ServersGone(f"For {reach.waited:.0f} s {trouble}")

    def _over(self, reply: pb.HostServiceReportReply) -> int:
        """The head has ended all processes before it says so."""
        self._work.end(self._signals.hurry)
        self._report()
        self._say(f"the run is over: {reply.reason or 'finished'} (exit code {reply.exit_code})")
        return reply.exit_code

    def _leave(self, code: int) -> int:
        """Ctrl-C: the processes leave the run in order, and the head learns how they ended."""
        self._say("leaving the run")
        self._report()
        self._work.end(self._signals.hurry)
        for _ in range(20):
            if (reply := self._report()) is None or reply.is_unknown or self._work.is_told:
                break
            self._work.note(reply.children)
        return code

    def _send_models(self) -> None:
        """Those that are new."""
        for model in sorted(self._work.models.glob("[a-z]*.safetensors")):
            written = model.stat().st_mtime_ns
            if self._kept.get(model.name) != written:
                self._calls.keep(self._host, model)
                self._kept[model.name] = written

    def _report(self, leaving: bool = False) -> pb.HostServiceReportReply | None:
        """One report; None where the head does not answer."""
        request = pb.HostServiceReportRequest(
            host=self._host,
            children=self._work.reports(),
            leaving=leaving or self._signals.exit_code is not None,
            trouble=self._trouble,
        )
        try:
            self._send_models()  # before the head hears that the worker has ended that wrote it
            reply = self._calls.report(request)
        except (TryAgain, ServersGone) as error:
            self._why = str(error)
            return None
        self._heard = time.monotonic()
        return reply


def make_offer(
    workers: int | None,
    servers: int,
    device: str,
    address: str,
    name: str,
    task: SlurmTask | None,
) -> tuple[Offer, str]:
    """The offer, and why it is this many workers. UsageError: nothing is offered."""
    chosen, why = (workers, "as you said") if workers is not None else _workers(device, task)
    if chosen < 0 or servers < 0 or not chosen + servers:
        raise UsageError(f"-w {chosen} -s {servers}: a machine must lend at least one worker or server to join a run.")
    called = name or (task.name if task is not None else socket.gethostname())
    cpus = task.cpus if task is not None else None
    return Offer(name=called, workers=chosen, servers=servers, device=device, address=address, cpus=cpus), why


def _workers(device: str, task: SlurmTask | None) -> tuple[int, str]:
    if task is not None:
        return task.workers, f"task of Slurm job {task.job}"
    gpus = 0 if device == "cpu" else len(visible_gpus(os.environ, Path("/dev")))
    if gpus:
        return gpus, f"one for each of its {gpus} GPUs"
    return cores(), f"one for each of its {cores()} cores"


def read_key(given: str | None, environment: Mapping[str, str]) -> str:
    """What --key or PACELINE_KEY says; '-' is the first line of stdin. UsageError: there is none."""
    found = given or environment.get(KEY) or ""
    if found == "-":
        found = sys.stdin.readline()
    if not found.strip():
        raise UsageError(
            f"The key is missing. Type the whole line that the run printed: {KEY}=... paceline join HOST:PORT."
        )
    return found

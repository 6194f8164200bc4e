"""Runs of real processes on a disturbed network: each worker in its own network namespace, linked to that of the servers;
tc, nftables and a slow road on their way. The run must end, its books must be even, and what stands still is said."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np

from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply
from paceline_papers.reproduce.network import INTERFACE, UNLIMITED, Network, Node, missing
from tests.chaos.kills import Kill
from tests.chaos.own.numbered import WORKERS
from tests.chaos.rounds import KINDS, OWN, Kind, Round, Variant
from tests.runs.test_peer_runs import final_models
from tests.support.processes import Cluster, Process, eventually

SERVERS = "servers"
"""The node of servers, sharder and evaluator; each worker's has its name."""
HIT = "worker-0"
"""Whose network is disturbed, where it is that of one worker."""
RING = 3
"""Workers of a run without servers."""
LEASE = 300
"""Longer than any disturbance: nobody is left behind, so that the books of lock-step are exact (seconds)."""
PACE: dict[str, Any] = {"epochs": 4, "lease": LEASE, "slow": {"all": "2x"}, "nominal_step": 0.1}
"""64 clocks for each worker, of .2 s each: 13 s on a good network."""
SAID_WITHIN = 10.0
TOGETHER = 3
"""Runs at once; most of their time they wait."""
PATIENCE = 240.0
"""A run that takes longer hangs (seconds)."""
_BETWEEN = 3.0
_AFTER = 30.0
"""How long what a worker says is waited for, after it stood still (seconds)."""
_RULES = "table inet chaos {{ chain in {{ type filter hook input priority 0; {}; }}; }}"
_FORGETFUL = """table inet chaos {
  chain in { type filter hook input priority 0; ct state invalid drop; }
  chain out { type filter hook output priority 0; ct state invalid drop; }
}"""
"""A firewall that knows connections: what belongs to none is dropped."""


@dataclass(frozen=True)
class Disturbance:
    """What is wrong with the network. Rules of nftables are for what a node receives; {} is the address of the worker
    that is hit."""

    name: str
    speed: str = ""
    """At which each machine sends, as tc writes it; empty: as fast as it can."""
    delay: tuple[float, float] = (0.0, 0.0)
    """Of each packet of a worker, and how much it varies (seconds)."""
    everywhere: str = ""
    """A rule for what each node receives, as long as the run."""
    receives: str = ""
    """A rule for the worker that is hit."""
    others_receive: str = ""
    seconds: float = 0.0
    """How long these rules are in force."""
    pulses: int = 1
    """How often these come."""
    forgets: bool = False
    """Whether the worker that is hit stands still for `seconds`, while a firewall forgets its connections after 30 s."""

    @property
    def stops(self) -> bool:
        """Whether the worker that is hit can do nothing for longer than a user should be left to guess."""
        return self.forgets or self.seconds > SAID_WITHIN


DISTURBANCES = {
    each.name: each
    for each in (
        Disturbance("loss", everywhere="numgen random mod 100 < 5 drop"),
        Disturbance("delay", delay=(0.2, 0.05)),
        Disturbance("slow", speed="200kbit"),
        Disturbance("one-way", receives="drop", seconds=20),
        Disturbance("partition", receives="drop", others_receive="ip saddr {} quota over 1600 bytes drop", seconds=60),
        Disturbance("nat", seconds=40, forgets=True),
        Disturbance("resets", receives="meta l4proto tcp reject with tcp reset", seconds=0.3, pulses=5),
    )
}
POLICIES = {
    **{name: KINDS[name] for name in ("asp", "ssp", "bsp")},
    "local_sgd": Kind("local_sgd", {"name": "local_sgd", "steps": 1}, lr=WORKERS),
    "allreduce": Kind("allreduce", {"name": "allreduce"}, lr=0.1),
}


@dataclass
class Cell:
    """What became of one run."""

    policy: str
    disturbance: str
    seconds: float = 0.0
    lost: float = 0.0
    """Examples that are missing or counted twice, and answered clocks that are missing."""
    said: float | None = None
    """Seconds after which the worker that is hit said what it can't reach; None: it said nothing."""
    words: str = ""
    why: str = ""
    """What was not as it must be."""

    def __str__(self) -> str:
        """A row of the table."""
        said = "" if self.said is None else f"{self.said:.1f} s"
        cells = (
            self.disturbance,
            self.policy,
            "NO" if self.why else "yes",
            f"{self.seconds:.0f} s",
            f"{self.lost:g}",
            said,
        )
        return f"| {' | '.join(cells)} |"


HEAD = "| network | policy | good | took | lost | said after |\n|---|---|---|---|---|---|"


class Spread(Cluster):
    """A cluster in which each worker has its own node. Who makes it is in the servers' node."""

    def __init__(self, folder: Path, nodes: dict[str, Node], **settings: Any) -> None:
        super().__init__(folder, **settings)
        self._nodes = nodes

    def words(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """The process in its node."""
        node = self._nodes.get(name, self._nodes[SERVERS])
        open_to_others = ["--bind", node.address, "--plain-text"] if name != "sharder" else []
        peers = ["--peer-host", node.address] if name in self._nodes else []
        return [OWN / "in_node.py", node.namespace, *arguments, *open_to_others, *peers]

    def listening(self, index: int, process: Process) -> Process:
        """Waits until the server has told its port."""
        super().listening(index, process)
        self.addresses[index] = self.addresses[index].replace("localhost", self._nodes[SERVERS].address)
        return process


class Weather:
    """Disturbs the network of a run, and notes when the worker that is hit says so."""

    def __init__(self, nodes: dict[str, Node], disturbance: Disturbance) -> None:
        self._nodes = nodes
        self._disturbance = disturbance
        self._roads: list[subprocess.Popen[str]] = []
        self.said: float | None = None
        """Seconds after which it did."""
        self.words = ""

    def __enter__(self) -> Self:
        """Brings what is so as long as the run; before its processes start."""
        one = self._disturbance
        for name, node in self._nodes.items():
            if one.everywhere:
                _set_rules(node, one.everywhere)
            if one.speed:
                _within(
                    node, *f"tc qdisc add dev {INTERFACE} root tbf rate {one.speed} burst 3028b latency 400ms".split()
                )
            if one.delay[0] and name != SERVERS:
                self._roads.append(_slow_road(node, *one.delay))
        return self

    def __exit__(self, *_: object) -> None:
        for road in self._roads:
            road.kill()
            road.wait()
        for name, node in self._nodes.items():
            _within(node, "nft", "flush", "ruleset")
            if self._disturbance.speed:
                _within(node, "tc", "qdisc", "del", "dev", INTERFACE, "root")
            if self._disturbance.delay[0] and name != SERVERS:
                straight = f"ip route replace {node.address.rpartition('.')[0]}.0/24 dev {INTERFACE} src {node.address}"
                _within(node, *straight.split())

    def strike(self, hit: Process) -> None:
        """What comes while the run trains, and goes again."""
        one, here = self._disturbance, self._nodes[HIT]
        before = len(_outages(hit))
        for pulse in range(one.pulses if one.seconds else 0):
            if pulse:
                time.sleep(_BETWEEN)
            if one.forgets:
                _forgetful(here)
                hit.send(signal.SIGSTOP)
                time.sleep(one.seconds)
                hit.send(signal.SIGCONT)
                self._listen(hit, before, time.monotonic(), _AFTER)
                return
            began = time.monotonic()
            for name, node in self._nodes.items():
                rule = one.receives if name == HIT else one.others_receive.format(here.address)
                if rule:
                    _set_rules(node, rule)
            self._listen(hit, before, began, one.seconds)
            for node in self._nodes.values():
                _within(node, "nft", "flush", "ruleset")

    def _listen(self, hit: Process, before: int, began: float, seconds: float) -> None:
        """For so long; notes the first new line on an outage, which has to say what fails, since when, and what to do."""
        while (left := began + seconds - time.monotonic()) > 0:
            if self.said is None and len(lines := _outages(hit)) > before:
                self.said, self.words = time.monotonic() - began, lines[before]
            time.sleep(min(0.1, left))


class Disturbed(Round):
    """A run with servers on a disturbed network, to the end of its budget."""

    def __init__(self, kind: Kind, folder: Path, nodes: dict[str, Node], weather: Weather) -> None:
        super().__init__(kind, 0, folder, variant=Variant("lane", False, "none", False, False))
        self.cluster = Spread(folder, nodes, **self.cluster.settings | PACE)
        self._weather = weather

    def _disturb(self, kills: int | Sequence[Kill]) -> None:
        self._weather.strike(self.workers[int(HIT[-1])])

    def _goes_on(self, pushes: int = 40) -> None:
        """To the end of its budget, which `_end` waits for."""

    def _end(self) -> None:
        for worker in self.workers.values():
            if worker.wait(PATIENCE):
                self._note(worker)
        status = self.cluster.status()
        assert status is not None
        assert status.examples >= status.budget > 0, f"{status.examples} of {status.budget} examples were trained"
        self.cluster.finish()


def ring(folder: Path, nodes: dict[str, Node], weather: Weather) -> list[str]:
    """A run without servers on a disturbed network: real workers that must end with one model, but for the last step. Returns
    what was not so."""
    settings = PACE | {"servers": 0, "workers": RING, "policy": {"name": "allreduce"}, "batch_size": 24, "epochs": 2}
    with Spread(folder, nodes, **settings) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0, sharder.text()
        workers = [cluster.worker(rank, torch=True) for rank in range(RING)]
        cluster.ready()
        workers[0].wait_for("training")
        cluster.until(lambda status: status.examples > 0)
        weather.strike(workers[int(HIT[-1])])
        status = eventually(lambda: _at_its_end(cluster), "the end of the training", PATIENCE)
        first, models = final_models(cluster)
        cluster.score()
        found = [f"{worker.name} ended with {code}" for worker in workers if (code := worker.wait())]
        cluster.end_servers(0)
    apart = max(float(np.abs(model - models[0]).max()) for model in models)
    if len(models) != RING or apart > 0.5 * float(np.abs(models[0] - first).max()):  # one may lack the last step
        found.append(f"{len(models)} models, {apart:g} apart")
    if status.examples < status.budget:
        found.append(f"{status.examples} of {status.budget} examples were trained")
    return found


def cell(policy: str, name: str) -> Cell:
    """Runs it on the network of this process."""
    kind, disturbance = POLICIES[policy], DISTURBANCES[name]
    found, folder = Cell(policy, name), Path(tempfile.mkdtemp(prefix=f"chaos-{name}-{policy}-"))
    nodes, began = _nodes(), time.monotonic()
    weather = Weather(nodes, disturbance)
    try:
        with weather:
            if policy == "allreduce":
                found.why = "; ".join(ring(folder, nodes, weather))
            else:
                result = Disturbed(kind, folder, nodes, weather).run(0)
                found.why = "" if result.is_good else str(result)
                found.lost = sum(each.missing + each.surplus + each.unanswered for each in result.balances)
    except AssertionError as error:
        found.why = f"did not go on: {str(error)[:2000] or 'an assertion failed'}"
    found.seconds = time.monotonic() - began
    found.said = weather.said
    found.words = weather.words
    if disturbance.stops and not found.why and (found.said is None or found.said > SAID_WITHIN):
        found.why = f"said {'nothing' if found.said is None else f'what it is only after {found.said:.1f} s'}"
    if found.why:
        found.why += f"; logs: {folder}"
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return found


@cache
def _nodes() -> dict[str, Node]:
    """Those of the network of this process, which stays in the servers' one."""
    network = Network(dict.fromkeys((SERVERS, *(f"worker-{rank}" for rank in range(WORKERS))), UNLIMITED))
    nodes = network.__enter__().nodes  # until the process ends
    nodes[SERVERS].enter()
    return nodes


def run(policies: Sequence[str], disturbances: Sequence[str]) -> list[Cell]:
    """All of these, some at once; prints each as it ends."""
    found = []
    with ProcessPoolExecutor(TOGETHER, mp_context=get_context("spawn")) as pool:
        waited = [pool.submit(cell, policy, name) for name in disturbances for policy in policies]
        print(HEAD, flush=True)
        for each in waited:
            found.append(one := each.result())
            print(one, flush=True)
            if one.why:
                print(f"  {one.why}", flush=True)
    return found


def why_not() -> str:
    """Why this machine or user can't disturb a network; empty where it can."""
    if why := missing():
        return why
    return "" if shutil.which("nft") else "There is no program nft (package nftables)."


def _at_its_end(cluster: Cluster) -> StatusReply | None:
    """Its status, where all that is left is to score it."""
    status = cluster.status()
    return status if status is not None and phase_of(status) == "scoring" else None


def _outages(process: Process) -> list[str]:
    """Its lines that say what it can't reach, since when, and what to do."""
    lines = (json.loads(line) for line in process.text().splitlines() if line.startswith("{") and line.endswith("}"))
    return [
        f"{line['event']}: {line['advice']}" for line in lines if line.get("advice") and line.get("seconds") is not None
    ]


def _within(node: Node, *words: str) -> None:
    """A command that must go well."""
    done = subprocess.run(["nsenter", f"--net={node.namespace}", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def _set_rules(node: Node, rule: str) -> None:
    _within(node, "nft", _RULES.format(rule))


def _forgetful(node: Node) -> None:
    """From now on a connection that is idle for 30 s is known no more."""
    _within(node, "nft", _FORGETFUL)
    known = "net.netfilter.nf_conntrack_tcp"
    _within(
        node,
        "sysctl",
        "-qw",
        f"{known}_timeout_established=30",
        f"{known}_timeout_unacknowledged=30",
        f"{known}_loose=0",
    )


def _slow_road(node: Node, delay: float, jitter: float) -> "subprocess.Popen[str]":
    """See there."""
    words = [str(OWN / "in_node.py"), node.namespace, str(OWN / "slow_road.py"), node.address, str(delay), str(jitter)]
    road = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert road.stdout is not None
    assert road.stdout.readline() == "ready\n", "the slow road is closed"
    return road

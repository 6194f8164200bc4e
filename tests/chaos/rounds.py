"""One round: a run of real processes that are killed with SIGKILL at random instants, and started again as `paceline run` does;
then the books of every slice."""

import contextlib
import random
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np

from paceline.core.settings.config import CheckpointConfig
from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply
from tests.chaos.kills import Kill, schedule
from tests.chaos.ledger import Balance, balance, expected, found
from tests.chaos.own.dying_server import POINTS, order_file
from tests.chaos.own.numbered import EACH, WORKERS
from tests.chaos.power import lose_power
from tests.support.processes import Cluster, Process, eventually

SERVERS = 2
BATCH = 4
OWN = Path(__file__).parent / "own"
TASK = OWN / "numbered.py"
SPARSE_RATE = 2.0**-14
"""A visit of an example adds this to its weight; the hinge is reached after 8,192 of them."""
MOST_TO_A_POINT = 10.0
"""Longest wait for a server to die at a point of a push (seconds)."""


@dataclass(frozen=True)
class Kind:
    """A kind of run: a policy, and settings that make its ledger exact."""

    name: str
    policy: dict[str, Any]
    lr: float = 1.0
    """One push adds 1 to the weight of each of its examples: the rate is a power of two, or the policy has a ledger."""
    momentum: float = 0.0
    sparse: bool = False
    overlaps: bool = False
    """Whether a gradient may be computed while a push is on its way."""
    codes: bool = False
    """Whether pushes may be coded in fp16."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("asp", {"name": "asp"}, overlaps=True, codes=True),
        Kind("ssp", {"name": "ssp", "bound": 3}, codes=True),
        Kind("bsp", {"name": "bsp"}, lr=WORKERS, codes=True),
        Kind(
            "kbuffered",
            {"name": str(OWN / "kbuffered_ledger.py"), "k": 2},
            lr=0.1,
            momentum=0.9,
            overlaps=True,
            codes=True,
        ),
        Kind("dana", {"name": str(OWN / "dana_ledger.py")}, lr=0.1, momentum=0.9),
        Kind("easgd", {"name": str(OWN / "easgd_ledger.py")}, lr=0.1),
        Kind("svm", {"name": "asp"}, lr=SPARSE_RATE, sparse=True, overlaps=True),
    )
}


@dataclass(frozen=True)
class Variant:
    """What else differs from round to round; a pure function of seed and kind."""

    transport: str
    overlap: bool
    codec: str
    """fp16 goes through error feedback; it keeps whole numbers as they are."""
    dies_late: bool
    """Whether a server is killed while the run stops, too."""
    power: bool
    """Whether a killed server's folder loses what was not synced."""

    @classmethod
    def of(cls, seed: int, kind: Kind) -> Self:
        """That of the seed."""
        rng = random.Random(f"variant {seed}")
        transport, overlap = ("grpc" if seed % 4 == 3 else "lane"), rng.random() < 0.3
        codec, dies_late = ("fp16" if rng.random() < 0.3 else "none"), rng.random() < 0.3
        power = random.Random(f"power {seed}").random() < 0.4
        return cls(transport, overlap and kind.overlaps, codec if kind.codes else "none", dies_late, power)

    def __str__(self) -> str:
        traits = {"overlap": self.overlap, "dies late": self.dies_late, "power loss": self.power}
        more = [word for word, there in traits.items() if there]
        return ", ".join([self.transport, *([self.codec] if self.codec != "none" else []), *more])


@dataclass
class Result:
    """What became of one round."""

    kind: str
    seed: int
    retain: int | None
    variant: Variant
    kills: list[Kill] = field(default_factory=list)
    balances: list[Balance] = field(default_factory=list)
    fell: list[str] = field(default_factory=list)
    """Processes that ended though nobody killed them."""
    points: list[str] = field(default_factory=list)
    """Where in its work on a push a server died, for each one that did."""
    dropped: int = 0
    """Files that were not as they had been when the power was back."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, nothing counted twice, and nothing fell."""
        clocks = {each.pushes for each in self.balances}
        return (
            bool(self.balances) and all(each.is_even for each in self.balances) and len(clocks) == 1 and not self.fell
        )

    @property
    def pushes(self) -> int:
        """Of all workers to one slice."""
        return max((each.pushes for each in self.balances), default=0)

    def __str__(self) -> str:
        retain = "" if self.retain is None else f" retain {self.retain}"
        slices = "; ".join(f"server {index}: {each}" for index, each in enumerate(self.balances))
        fell = f"; fell: {' | '.join(self.fell)}" if self.fell else ""
        state = "ok  " if self.is_good else "LOST"
        return (
            f"{state} {self.kind} seed {self.seed}{retain} ({self.variant}): {len(self.kills)} kills, {self.seconds:.0f} s; "
            f"{slices}{fell}"
        )


FORMS = {
    f"{form}, {transport}": (KINDS[kind], Variant(transport, False, codec, False, power=True))
    for form, kind, codec in (("dense", "asp", "none"), ("coded", "asp", "fp16"), ("sparse", "svm", "none"))
    for transport in ("lane", "grpc")
}
"""Forms of a push on both transports, for servers that die at each point of it."""


def deaths(servers: Sequence[int] = range(SERVERS)) -> list[Kill]:
    """One of these servers after the other (0: the chief's) dies at each point of a push."""
    return [Kill(0.05, (server,), (), 0.0, point, 3) for server in servers for point in POINTS]


def can_retain() -> bool:
    """Whether workers keep what they have sent (checkpoint.retain)."""
    return "retain" in CheckpointConfig.model_fields


def settings(kind: Kind, variant: Variant, retain: int | None, folder: Path) -> dict[str, Any]:
    """The round's settings."""
    found: dict[str, Any] = {
        "task": str(TASK),
        "workers": WORKERS,
        "servers": SERVERS,
        "policy": kind.policy,
        "optimizer": {"name": "sgd", "lr": kind.lr, "momentum": kind.momentum, "weight_decay": 0},
        "epochs": 100_000,
        "batch_size": BATCH,
        "data": {"validation": 0, "test": 0, "leases": False},  # the books are by worker
        "transport": variant.transport,
        "overlap": variant.overlap,
        "heartbeat": 0.5,
        "lease": 60,
        "slow": {"all": "2x"},
        "nominal_step": 0.004,
    }
    if variant.codec != "none":
        found["codec"] = {"push": variant.codec, "error_feedback": True}
    if retain is not None and can_retain():
        found["checkpoint"] = {"retain": retain}
    if kind.sparse:
        path = folder / "numbered.svm"
        total = WORKERS * EACH
        folder.mkdir(parents=True, exist_ok=True)
        rows = (f"{(-1) ** row} {row + 1}:1 {total + row + 1}:1\n" for row in range(total))
        path.write_text("".join(rows))
        found |= {
            "task": "svm",
            "updates": "sparse",
            "schedule": {"name": "constant", "lr_scale": "none"},
            "data": {"path": str(path), "validation": 0, "test": 0, "leases": False},
            "svm": {
                "objective": {"loss": "hinge", "c": None, "lam": 0},
                "steps": "plain",
                "intercept": False,
                "average_last": None,
                "batches": 1,
            },
        }
    return found


class Round:
    """The processes of one run, killed and started again."""

    def __init__(
        self, kind: Kind, seed: int, folder: Path, retain: int | None = None, variant: Variant | None = None
    ) -> None:
        """`variant`: None for that of the seed."""
        self.kind = kind
        variant = variant or Variant.of(seed, kind)
        self.result = Result(kind.name, seed, retain, variant)
        self.cluster = Cluster(folder, **settings(kind, variant, retain, folder))
        self.cluster.server_program = [OWN / "dying_server.py"]
        self.servers: dict[int, Process] = {}
        self.workers: dict[int, Process] = {}

    def run(self, kills: int | Sequence[Kill]) -> Result:
        """Trains through that many kills of the seed, or through these; ends the run and balances its books. AssertionError
        where it does not go on."""
        start = time.monotonic()
        with self.cluster:
            self._start()
            self._disturb(kills)
            self._goes_on()
            self._end()
            self.result.balances = self._books()
        self.result.seconds = time.monotonic() - start
        return self.result

    def _disturb(self, kills: int | Sequence[Kill]) -> None:
        planned = schedule(self.result.seed, kills, SERVERS, WORKERS) if isinstance(kills, int) else kills
        for kill in planned:
            self._watch(kill.after)
            self._hit(kill)

    def _start(self) -> None:
        cluster = self.cluster
        sharder = cluster.sharder()
        self.servers = dict(enumerate(cluster.servers()))
        assert sharder.wait() == 0, sharder.text()
        self.workers = {rank: self._worker(rank) for rank in range(WORKERS)}
        cluster.ready()
        cluster.until(lambda status: status.version > 20)

    def _worker(self, rank: int) -> Process:
        if not self.kind.sparse:
            return self.cluster.worker(rank, mode="samples")
        return self.cluster.worker(rank, program=OWN / "linear_worker.py")

    def _server(self, index: int) -> Process:
        return self.cluster.listening(index, self.cluster.server(index))

    def _hit(self, kill: Kill, at_once: bool = True) -> None:
        """Kills, waits, starts again. Not `at_once`: it waits first, and what ends meanwhile is no fall."""
        if not at_once:
            time.sleep(kill.after)
        self.result.kills.append(kill)
        if kill.point:
            self._await_point(kill)
        hit = [self.servers[index] for index in kill.servers] + [self.workers[rank] for rank in kill.workers]
        for process in hit:
            process.send(signal.SIGKILL)
        for process in hit:
            process.kill()
        if self.result.variant.power:
            self.result.dropped += sum(lose_power(self._folder(index), kill.names_kept) for index in kill.servers)
        time.sleep(kill.pause)
        for index in kill.servers:
            self.servers[index] = self._server(index)
        for rank in kill.workers:
            self.workers[rank] = self._worker(rank)

    def _await_point(self, kill: Kill) -> None:
        """Tells the first server to die at the point, and waits for that; what gets no push in time is killed as it is."""
        index = kill.servers[0]
        server, order = self.servers[index], order_file(self._folder(index))
        new = order.with_suffix(".die-new")
        new.write_text(f"{kill.point}:{kill.push}")
        new.rename(order)
        end = time.monotonic() + MOST_TO_A_POINT
        while server.is_running and time.monotonic() < end:
            time.sleep(0.002)
        if not server.is_running:
            self.result.points.append(kill.point)
        order.unlink(missing_ok=True)

    def _folder(self, index: int) -> Path:
        return self.cluster.folder / f"s{index}"

    def _watch(self, seconds: float) -> None:
        """Lets time pass; a process that ends by itself is noted, and started again."""
        end = time.monotonic() + seconds
        while True:
            self._raise_fallen()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.1, left))

    def _raise_fallen(self) -> None:
        for index, process in self.servers.items():
            if not process.is_running:
                self._note(process)
                self.servers[index] = self._server(index)
        for rank, process in self.workers.items():
            if not process.is_running:
                self._note(process)
                self.workers[rank] = self._worker(rank)

    def _note(self, process: Process) -> None:
        last = process.text().strip().splitlines()[-1:] or ["said nothing"]
        self.result.fell.append(f"{process.name}, exit code {process.wait()}: {last[0][-300:]}")

    def _goes_on(self, pushes: int = 40) -> None:
        """Waits until the chief's slice has folded more."""
        before: list[int] = []

        def reached(status: StatusReply) -> bool:
            self._raise_fallen()
            if phase_of(status) != "training":
                return False
            before.append(status.version)
            return status.version > before[0] + pushes

        self.cluster.until(reached)

    def _end(self) -> None:
        """Stops the run, as somebody would by `paceline stop`; the chief may not know yet where its members are."""

        def stopped() -> bool:
            with contextlib.suppress(grpc.RpcError):
                self.cluster.stop()
                return True
            return False

        eventually(stopped, "an answer to Stop")
        if self.result.variant.dies_late:
            rng = random.Random(f"late {self.result.seed}")
            server = rng.randrange(SERVERS)
            self._hit(Kill(rng.uniform(0.0, 0.5), (server,), (), 0.0), at_once=False)
        codes = [worker.wait() for worker in self.workers.values()]
        for worker, code in zip(self.workers.values(), codes, strict=True):
            if code:
                self._note(worker)
        self.cluster.finish()

    # the books
    def _books(self) -> list[Balance]:
        owned = {f"worker-{rank}": self._owned(rank) for rank in range(WORKERS)}
        answered = {f"worker-{rank}": self._answered(rank) for rank in range(WORKERS)}
        balances = []
        for _, state in self.cluster.states():
            clocks = {worker: int(entry["clock"]) for worker, entry in state.table["clocks"].items()}
            wanted = expected(self.cluster.shards, owned, clocks, BATCH)
            balances.append(balance(state, self._has(state), wanted, answered))
        return balances

    def _has(self, state: Any) -> Any:
        if not self.kind.sparse:
            return found(state, 1.0, -BATCH)
        signs = (-1.0) ** np.arange(WORKERS * EACH)
        return found(state, 1.0, 0.0) / (SPARSE_RATE * signs)

    def _owned(self, rank: int) -> Sequence[int]:
        """The worker's shards; every process of this name had the same."""
        said = [
            event["shards"]
            for process in self.cluster.processes
            if process.name == f"worker-{rank}"
            for event in process.events("training")
        ]
        assert said, f"worker-{rank} never trained"
        assert all(each == said[0] for each in said), f"worker-{rank} had shards {said}"
        return list(said[0])

    def _answered(self, rank: int) -> int:
        """The worker's last answered clock, over all its processes."""
        note = self.cluster.folder / f"answered-{rank}"
        raw = note.read_bytes() if note.exists() else b""
        return int(struct.unpack("<q", raw[:8])[0]) if len(raw) >= 8 else 0

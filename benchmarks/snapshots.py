"""What a snapshot costs the pushes at the same time: python -m benchmarks.snapshots

One server's slice with momentum in this process, workers as threads that push at random times, and snapshots to a real disk:
how long a push takes from its last byte to its answer, without snapshots and with them, in turns. Its CPU time has the copies
that it makes itself; on a machine that has other work, it says more than the time on the clock."""

import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep, thread_time
from typing import Annotated

import numpy as np
import typer
from prometheus_client import CollectorRegistry

from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Dense, Push, Seat, View
from paceline.processes.exits import exits, run_command
from paceline.server.metrics import ServerMetrics
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder
from paceline.v1 import parameter_service_pb2 as pb

HEADS = (
    "snapshots",
    "pushes",
    "median (ms)",
    "99th percentile (ms)",
    "longest (ms)",
    "99th percentile of CPU (ms)",
    "most CPU (ms)",
    "snapshots written",
    "seconds each",
)
_SENT = 0.02
"""How long an answer's weights are read (seconds)."""


@dataclass
class Bench:
    """A slice, its workers, and how long each of their pushes took."""

    config: Config
    length: int
    seconds: list[tuple[float, float]] = field(default_factory=list)
    """On the clock, and of CPU time."""

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ServerMetrics(self.registry, "asp")
        self.driver = SliceDriver(self.config, 0, 1, self.metrics)
        shapes = (("weight", (self.length,)),)
        self.driver.adopt(shapes, make_plan(shapes, 1, self.config.plan).hash, "worker-0")
        self.driver.initialise(np.zeros(self.length, np.float32), b"")
        self.driver.view(View(1, {f"worker-{number}": Seat(1, 0) for number in range(self.config.workers)}))
        self._clocks = [0] * self.config.workers

    def train(self, seconds: float, pause: float) -> None:
        """Pushes of all workers; `pause`: mean of the seconds that each computes between two pushes."""
        workers = [
            threading.Thread(target=self._work, args=(number, monotonic() + seconds, pause))
            for number in range(self.config.workers)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, number: int, end: float, pause: float) -> None:
        name, rng, base = f"worker-{number}", np.random.default_rng(number), Base(1, 0)
        while monotonic() < end:
            sleep(rng.uniform(0.5, 1.5) * pause)
            values, _ = self.driver.take_buffer(pb.PushHead(worker=name), lambda: True)
            values.fill(1e-3)
            self._clocks[number] += 1
            push = Push(name, 1, self._clocks[number], Dense(values), 1, base, 1, monotonic())
            start, spent = perf_counter(), thread_time()
            reply = self.driver.push(push, values, lambda: True)
            self.seconds.append((perf_counter() - start, thread_time() - spent))
            assert reply is not None
            base = Base(reply.term, reply.weights.version)
            sleep(_SENT)
            self.driver.release(reply.weights)

    def figures(self, name: str) -> list[str]:
        """One line, under HEADS; the first pushes, which touch memory, are left out."""
        found = 1e3 * np.array(self.seconds[5 * self.config.workers :])
        shares = ((0, 50), (0, 99), (0, 100), (1, 99), (1, 100))
        cells = [f"{np.percentile(found[:, kind], share):.1f}" for kind, share in shares]
        count, total = (
            self.registry.get_sample_value(f"paceline_server_checkpoint_seconds_{kind}") or 0.0
            for kind in ("count", "sum")
        )
        return [name, str(len(found)), *cells, f"{count:.0f}", f"{total / count:.2f}" if count else ""]


def measured(length: int, workers: int, seconds: float, pause: float, with_snapshots: bool, folder: Path) -> list[str]:
    """The line of one run."""
    optimizer = Options(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
    config = Config(workers=workers, servers=1, policy=Options(name="asp"), optimizer=optimizer)
    bench = Bench(config, length)
    if not with_snapshots:
        bench.train(seconds, pause)
        return bench.figures("without")
    store = StateFolder(folder, 3, lambda event, **facts: print(event, facts))
    snapshots = Snapshots(bench.driver, store, None, bench.metrics, lambda event, **facts: print(event, facts))
    snapshots.start()
    try:
        bench.train(seconds, pause)
    finally:
        snapshots.close()
        store.close()
    return bench.figures("with")


def main(
    megabytes: Annotated[int, typer.Option(min=1, help="The slice (MB).")] = 94,
    workers: Annotated[int, typer.Option(min=1, max=32, help="How many push.")] = 4,
    seconds: Annotated[float, typer.Option(min=1, help="Length of each run.")] = 30.0,
    pause: Annotated[float, typer.Option(min=0, help="Seconds that a worker computes between pushes.")] = 0.4,
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 2,
) -> None:
    """Prints a Markdown table."""
    with exits("snapshots"):
        for line in (HEADS, ["---"] * len(HEADS)):
            print(f"| {' | '.join(line)} |")
        for _ in range(turns):
            for is_on in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    cells = measured(megabytes * 10**6 // 4, workers, seconds, pause, is_on, Path(folder))
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    run_command(main)

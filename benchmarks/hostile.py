"""What hostile and slow readers cost training: pushes a second of one worker without them and next to 200 readers that wait for
a version to come and 20 that read slowly, in turns; the server's CPU time for these readers, which other work on the machine
does not change; and whether heartbeats were answered. Readers would be on other machines: here they get the CPU time that is
left over (nice 19). Run: python -m benchmarks.hostile"""

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from paceline.core.errors import PacelineError
from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.retries import backoff
from paceline.rpc.transport import Transport
from paceline.v1 import parameter_service_pb2 as pb
from tests.support import in_process

SECRET = "a-secret-that-is-long-enough-for-all"
VALUES = 2_000_000
NEVER = 10**9
"""A version that does not come."""
WAITING, SLOW = 200, 20
_PAUSE = 10.0
"""Seconds between two parts of 4 MiB of a slow reader: .4 MB a second."""

_START = 8.0
"""Seconds until all readers have begun."""


class Slow:
    """Takes each part after a pause."""

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return None

    def take(self, offset: int, data: memoryview) -> None:
        time.sleep(_PAUSE)


def read(ports: tuple[str, int], plan: str, number: int) -> None:
    """One reader with its own token; where there is a lane, half of them use it. All wait as workers do when they are
    refused."""
    shown = Credentials(SECRET, role="reader", name=f"reader-{number}")
    address, lane = ports
    way: Transport = GrpcTransport(open_channel(address, shown))
    if lane and number % 2:
        way = LaneTransport(f"localhost:{lane}", shown)
    request = pb.PullRequest(reader=shown.name, plan_hash=plan, version=NEVER if number < WAITING else None)
    while True:
        for pause in backoff():
            with suppress(PacelineError):
                way.pull(request, lambda head: Slow(), 30.0)
                break
            time.sleep(pause)


def readers(ports: tuple[str, int], plan: str) -> None:
    """All of them, in another process."""
    os.nice(19)
    for number in range(WAITING + SLOW):
        threading.Thread(target=read, args=(ports, plan, number), daemon=True).start()
    threading.Event().wait()


def pushes_per_second(pusher: in_process.Pusher, seconds: float) -> float:
    begun, count = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        pusher.push(0.0)
        count += 1
    return count / (time.monotonic() - begun)


def busy(seconds: float) -> float:
    """The share of a core that this process takes while nobody pushes."""
    before = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--transport", choices=["lane", "grpc"], default="lane")
    asked = parser.parse_args()
    in_process.SHAPES, in_process.LENGTH = (("weight", (VALUES,)),), VALUES
    with tempfile.TemporaryDirectory() as folder:
        config = in_process.config_of("asp", workers=2, transport=asked.transport, epochs=1_000_000)
        cluster = in_process.Cluster(config, Path(folder), Credentials(SECRET))
        lane = cluster.servers[0].lane
        fast, other = in_process.seated(cluster)
        plan = make_plan(in_process.SHAPES, 1, config.plan).hash
        context = multiprocessing.get_context("spawn")
        ports = cluster.addresses[0], lane.port if lane is not None else 0
        missed = 0

        def beat() -> None:
            nonlocal missed
            while True:
                for pusher in (fast, other):
                    try:
                        pusher.chief.beat(pusher.incarnation, pusher.clock, "compute", 0.0, {})
                    except PacelineError:
                        missed += 1
                time.sleep(1.0)

        threading.Thread(target=beat, daemon=True).start()
        pushes_per_second(fast, asked.seconds)
        rates: dict[bool, list[float]] = {False: [], True: []}
        shares: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(asked.turns):
            rates[False].append(pushes_per_second(fast, asked.seconds))
            shares[False].append(busy(asked.seconds))
            hostile = context.Process(target=readers, args=(ports, plan), daemon=True)
            hostile.start()
            time.sleep(_START)
            rates[True].append(pushes_per_second(fast, asked.seconds))
            shares[True].append(busy(asked.seconds))
            hostile.kill()
            hostile.join()
        alone, beside_them = median(rates[False]), median(rates[True])
        lapsed = sum(event == "lease lapsed" for event, _ in cluster.said[0])
        print(
            f"pushes a second alone: {alone:.1f}; beside {WAITING} that wait and {SLOW} slow readers: {beside_them:.1f}"
        )
        print(f"of a core, without pushes: alone {median(shares[False]):.3f}; beside them {median(shares[True]):.3f}")
        print(f"ratio {beside_them / alone:.2f}; heartbeats refused: {missed}; leases lapsed: {lapsed}")
        cluster.close()


if __name__ == "__main__":
    main()

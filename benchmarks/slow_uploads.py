"""What slow uploads cost a fast worker: its exchanges a second alone and next to 2, 4 and 8 workers that push 100 KB/s, in
turns. Run: python -m benchmarks.slow_uploads"""

import argparse
import multiprocessing
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path
from statistics import median

from benchmarks.hostile import pushes_per_second
from paceline.core.errors import PacelineError
from paceline.core.slice.plan import make_plan
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.transport import Transport
from paceline.v1 import parameter_service_pb2 as pb
from tests.support import in_process

SLOW = (2, 4, 8)
RATE = 100e3
"""Bytes a second of one slow worker."""
_PART = 4000
"""Elements: 16 KB."""
_STARTS = 300.0
"""Seconds in which the uploads must have begun."""


def parts(values: int, until: Event) -> Iterator[tuple[int, memoryview]]:
    """A push of zeros at RATE."""
    data = memoryview(bytes(4 * _PART))
    for first in range(0, values, _PART):
        if until.wait(4 * _PART / RATE):
            raise TimeoutError
        yield first, data[: 4 * (min(values, first + _PART) - first)]


def uploads(way: tuple[str, int], heads: list[bytes], begun: Semaphore, until: Event) -> None:
    """One push of each of these heads after the other, in another process; each worker has its own connection."""

    def upload(raw: bytes) -> None:
        head, (kind, port) = pb.PushHead.FromString(raw), way
        to: Transport = LaneTransport(f"localhost:{port}")
        if kind == "grpc":
            to = GrpcTransport(open_channel(f"localhost:{port}"))
        begun.release()
        while not until.is_set():
            with suppress(PacelineError, TimeoutError):
                to.push(head, parts(head.elements, until), 60.0)
                head.clock += 1

    threads = [threading.Thread(target=upload, args=(raw,), daemon=True) for raw in heads]
    for thread in threads:
        thread.start()
    until.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=2_000_000, help="of the slice")
    parser.add_argument("--places", type=int, default=9, help="that push_memory has room for")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--transport", choices=["lane", "grpc"], default="lane")
    asked = parser.parse_args()
    in_process.SHAPES, in_process.LENGTH = (("weight", (asked.values,)),), asked.values
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        config = in_process.config_of(
            "asp",
            workers=1 + max(SLOW),
            transport=asked.transport,
            lease=900.0,
            epochs=1_000_000,
            push_memory=4 * asked.values * asked.places,
        )
        cluster = in_process.Cluster(config, Path(folder))
        fast, *others = in_process.seated(cluster)
        lane, plan = cluster.servers[0].lane, make_plan(in_process.SHAPES, 1, config.plan).hash
        heads = [
            pb.PushHead(
                worker=other.name,
                incarnation=other.incarnation,
                clock=1,
                examples=1,
                base_term=1,
                view=other.view,
                plan_hash=plan,
                elements=asked.values,
            ).SerializeToString()
            for other in others
        ]
        way = asked.transport, cluster.servers[0].port if lane is None else lane.port
        pushes_per_second(fast, asked.seconds)
        print(f"{asked.transport}, {4 * asked.values:,} bytes a push, {asked.places} places")
        for slow in SLOW:
            alone, beside = list[float](), list[float]()
            for _ in range(asked.turns):
                alone.append(pushes_per_second(fast, asked.seconds))
                begun, until = context.Semaphore(0), context.Event()
                hostile = context.Process(target=uploads, args=(way, heads[:slow], begun, until), daemon=True)
                hostile.start()
                for _ in range(slow):
                    assert begun.acquire(timeout=_STARTS), "the uploads did not begin"
                beside.append(pushes_per_second(fast, asked.seconds))
                until.set()
                hostile.join()
            ratio = median(beside) / median(alone)
            print(
                f"{slow} slow: {median(alone):.1f} a second alone, {median(beside):.1f} beside them, ratio {ratio:.2f}",
                flush=True,
            )
        cluster.close()


if __name__ == "__main__":
    main()

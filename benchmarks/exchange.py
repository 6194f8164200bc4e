"""How long a small exchange takes: a sparse push of 8 KB and its answer of 8 KB, without a slice behind them, on the lane, on
the grpcio data plane, and on an open stream of stock grpcio, in one interleaved run. Run: python -m benchmarks.exchange"""

import argparse
import multiprocessing
import queue
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import grpc

from benchmarks.kernels import Row, show
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcServicer, GrpcTransport
from paceline.rpc.host import bind, make_server
from paceline.rpc.lane.call import parameter_routes
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.transport import IsThere
from paceline.rpc.watchdog import Watchdog
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.parameter_service_pb2_grpc import (
    ParameterServiceServicer,
    ParameterServiceStub,
    add_ParameterServiceServicer_to_server,
)

BYTES = 8192
TOKEN = "a-secret-as-every-run-has-one"
PATIENCE = 20.0
LANE, GRPC, STOCK = "lane", "grpcio data plane", "stock grpcio, open stream"
Exchange = Callable[[pb.PushPullSparseRequest], pb.PushPullSparseReply]


class Echo:
    """What both data planes serve here: the values come back."""

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply:
        return pb.PushPullSparseReply(values=request.values)


class StockEcho(ParameterServiceServicer):
    """The same by generated code: no token, no count, no checks."""

    def ExchangeSparse(
        self, request_iterator: Iterator[pb.PushPullSparseRequest], context: Any
    ) -> Iterator[pb.PushPullSparseReply]:
        for request in request_iterator:
            yield pb.PushPullSparseReply(values=request.values)


def serve(pipe: "Connection[Any, Any]") -> None:
    """All servers, in one process, until the pipe ends."""
    echo: Any = Echo()
    watchdog, observe = Watchdog(), lambda name, status, seconds: None
    watchdog.start()
    lane = LaneServer(parameter_routes(echo), 8, authentication(Credentials(TOKEN)), observe, watchdog)
    lane.start()
    plane = make_server(8, authentication(Credentials(TOKEN)), observe)
    GrpcServicer(echo, watchdog).add_to(plane)
    stock = grpc.server(ThreadPoolExecutor(8))
    add_ParameterServiceServicer_to_server(StockEcho(), stock)
    ports = {LANE: lane.port, GRPC: bind(plane, 0, "gRPC"), STOCK: bind(stock, 0, "gRPC")}
    plane.start()
    stock.start()
    pipe.send(ports)
    pipe.poll(None)


def stock(address: str, length: int) -> Generator[Exchange, None, None]:
    """One stream of stock grpcio, open until the generator is closed."""
    requests: queue.SimpleQueue[pb.PushPullSparseRequest | None] = queue.SimpleQueue()
    message = pb.PushPullSparseRequest(values=bytes(length))
    with grpc.insecure_channel(address) as channel:
        answers = ParameterServiceStub(channel).ExchangeSparse(iter(requests.get, None))

        def exchange(request: pb.PushPullSparseRequest) -> pb.PushPullSparseReply:
            requests.put(message)
            answer: pb.PushPullSparseReply = next(answers)
            return answer

        yield exchange
        requests.put(None)


def measure(count: int, rounds: int, length: int = BYTES) -> dict[str, list[float]]:
    """Seconds of each exchange, by contender; `count` in each turn, `rounds` turns after one to get warm."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    request, shown = pb.PushPullSparseRequest(values=bytes(length)), Credentials(TOKEN)
    seconds: dict[str, list[float]] = {}
    try:
        addresses = {name: f"127.0.0.1:{port}" for name, port in ours.recv().items()}
        lane, plane = LaneTransport(addresses[LANE], shown), GrpcTransport(open_channel(addresses[GRPC], shown))
        with closing(lane), closing(stock(addresses[STOCK], length)) as opened:
            contenders: dict[str, Exchange] = {
                LANE: lambda push: lane.push_sparse(push, PATIENCE),
                GRPC: lambda push: plane.push_sparse(push, PATIENCE),
                STOCK: next(opened),
            }
            for round_ in range(rounds + 1):
                for name, exchange in contenders.items():
                    taken = [_timed(exchange, request) for _ in range(count)]
                    if round_:
                        seconds.setdefault(name, []).extend(taken)
    finally:
        ours.close()
        process.join(PATIENCE)
    return seconds


def _timed(exchange: Exchange, request: pb.PushPullSparseRequest) -> float:
    start = perf_counter()
    answer = exchange(request)
    taken = perf_counter() - start
    assert answer.values == request.values
    return taken


def rows(seconds: dict[str, list[float]]) -> list[Row]:
    """Ratios of the medians."""
    middle = {name: median(taken) for name, taken in seconds.items()}
    return [
        Row("lane: 8 KB exchange / grpcio open stream", middle[LANE] / middle[STOCK], 0.5, 0.33),
        Row("   the same / grpcio data plane", middle[LANE] / middle[GRPC], None, None),
    ]


def main() -> None:
    """Prints the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="exchanges in a turn")
    parser.add_argument("--rounds", type=int, default=10)
    told = parser.parse_args()
    seconds = measure(told.count, told.rounds)
    print(f"{'an exchange of 8 KB, microseconds':44}{'median':>9}{'p10':>9}{'p90':>9}")
    for name, taken in seconds.items():
        tenths = quantiles(taken, n=10)
        print(f"{name:44}" + "".join(f"{1e6 * value:9.0f}" for value in (median(taken), tenths[0], tenths[-1])))
    show(rows(seconds), width=9)


if __name__ == "__main__":
    main()

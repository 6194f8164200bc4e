"""A parameter server on torch.distributed.rpc: `rpc_sync` carries the gradient there and the weights back.

Each server holds its part of the model and folds every push at once with torch's fused SGD, one at a time; workers run
free of each other (asynchronous). The weights are answered without a copy, so a reply may mix two versions while others
push: faster than Paceline's replies, which are always of one version. TensorPipe chooses the transport itself, and on
one machine that may be shared memory.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed.rpc as rpc

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, parser, play

PATIENCE = 600.0
"""Seconds a call may take on a busy machine."""


class ParameterServer:
    """One part of the model and its optimizer."""

    def __init__(self, elements: int) -> None:
        self._writer = threading.Lock()
        self._model = torch.nn.Parameter(torch.zeros(elements))
        self._optimizer = torch.optim.SGD(
            [self._model], lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True
        )

    def push_pull(self, gradient: torch.Tensor) -> torch.Tensor:
        """Fold a gradient and answer the weights."""
        with self._writer:
            self._model.grad = gradient
            self._optimizer.step()
        return self._model.detach()

    def pull(self) -> torch.Tensor:
        """The weights as they are."""
        return self._model.detach()


_serving: list[ParameterServer] = []
"""RPC calls functions of this module by name, so the process's one server must be found here."""


def push_pull(gradient: torch.Tensor) -> torch.Tensor:
    """What workers call on a server process."""
    return _serving[0].push_pull(gradient)


def pull() -> torch.Tensor:
    """What the last check calls on a server process."""
    return _serving[0].pull()


def _enter(meeting: str, job: Job, name: str, rank: int) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meeting}", rpc_timeout=PATIENCE)
    rpc.init_rpc(  # type: ignore[no-untyped-call]
        name, rank=rank, world_size=job.servers + job.workers, rpc_backend_options=options
    )


def serve(meeting: str, job: Job, server: int, announce: Callable[[str], None]) -> None:
    """A server process. It announces itself first: entering the group returns only when all workers have entered, too."""
    cut = job.cuts()[server]
    _serving.append(ParameterServer(cut.stop - cut.start))
    announce(f"server-{server}")
    _enter(meeting, job, f"server-{server}", server)
    threading.Event().wait()


class RpcWorker:
    """A worker that calls all servers at the same time."""

    def __init__(self, meeting: str, job: Job, rank: int, servers: Sequence[str]) -> None:
        _enter(meeting, job, f"worker-{rank}", len(servers) + rank)
        self._cuts = list(zip(servers, job.cuts(), strict=True))
        self._model: list[torch.Tensor] = []

    def iterate(self, gradient: Vector) -> None:
        flat = torch.from_numpy(gradient)
        if len(self._cuts) == 1:
            self._model = [rpc.rpc_sync(self._cuts[0][0], push_pull, args=(flat,))]
            return
        replies = [rpc.rpc_async(server, push_pull, args=(flat[cut],)) for server, cut in self._cuts]
        self._model = [reply.wait() for reply in replies]

    def weights(self) -> Vector:
        return torch.cat([rpc.rpc_sync(server, pull) for server, _ in self._cuts]).numpy()


def main() -> None:
    job = job_of(parser(__doc__).parse_args())
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        play(
            job,
            partial(serve, meeting),
            partial(RpcWorker, meeting),
            servers=job.servers,
            workers=job.workers,
            folds=job.workers * job.iterations,
        )


if __name__ == "__main__":
    # RPC sends functions by module name: run under the importable one, which is the same in every process.
    from benchmarks.peers import torch_rpc

    torch_rpc.main()

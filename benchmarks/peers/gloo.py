"""No server at all: torch's Gloo allreduce of the whole gradient, then every worker's own fused SGD step on the mean.

The communication of DistributedDataParallel on CPUs with a single bucket. Synchronous, so one fold in each iteration;
`--servers` means nothing to it. Over loopback TCP.
"""

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, job_of, nothing, parser, play


class GlooWorker:
    """One rank: its own copy of the model and of the optimizer."""

    def __init__(self, meeting: str, job: Job, rank: int, _: Sequence[str]) -> None:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=job.workers)
        self._model = torch.nn.Parameter(torch.zeros(job.elements))
        self._optimizer = torch.optim.SGD(
            [self._model], lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True
        )

    def iterate(self, gradient: Vector) -> None:
        """Sum, mean, step. The mean of equal gradients is that gradient, so summing in place leaves it as it was."""
        total = torch.from_numpy(gradient)
        dist.all_reduce(total)
        self._model.grad = total.div_(dist.get_world_size())
        self._optimizer.step()

    def weights(self) -> Vector:
        return self._model.detach().numpy()


def main() -> None:
    job = job_of(parser(__doc__).parse_args())
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        join = partial(GlooWorker, str(Path(folder) / "meeting"))
        play(job, nothing, join, servers=0, workers=job.workers, folds=job.iterations)


if __name__ == "__main__":
    main()

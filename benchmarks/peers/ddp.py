"""No server at all: torch's DistributedDataParallel over Gloo, on the same mini-batches as Paceline's workers."""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from benchmarks.training import Snapshot, arguments, tell
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import Shards, take
from paceline.tasks.task import load_task


def train(meeting: str, config: Config, shards: Shards, rank: int) -> list[Snapshot]:
    """One rank, on one thread; returns the weights at the end of each epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=config.workers)
    task, shard, run_optimizer = load_task(config.task, config.model), shards.shard(rank), config.optimizer.options
    torch.manual_seed(config.seed)
    model = task.model()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), **run_optimizer, fused=True)
    sizes = shards.manifest.sizes
    steps = steps_per_epoch(sizes, [[owned] for owned in range(config.workers)], config.worker_batch)
    sampler = Sampler([sizes[rank]], config.worker_batch, steps, config.seed, f"worker-{rank}")
    snapshots = []
    dist.barrier()
    start = time.perf_counter()
    for position in range(1, config.epochs * steps + 1):
        features, labels = take([shard], *sampler.batch(position))
        inputs, targets = task.prepare(features, labels, np.random.default_rng([config.seed, rank, position]))
        optimizer.zero_grad()
        task.loss(parallel, inputs, targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if position % steps == 0:
            weights = parameters_to_vector(model.parameters()).detach().numpy()
            snapshots.append(Snapshot(time.perf_counter() - start, weights))
    dist.barrier()
    dist.destroy_process_group()
    return snapshots


def main() -> None:
    _, config, shards = arguments(__doc__)
    build_optimizer(config.optimizer)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        job = (str(Path(folder) / "meeting"), config, shards)
        context = multiprocessing.get_context("spawn")
        others = [context.Process(target=train, args=(*job, rank), daemon=True) for rank in range(1, config.workers)]
        for other in others:
            other.start()
        snapshots = train(*job, 0)
        for other in others:
            other.join()
    tell(config, shards, snapshots)


if __name__ == "__main__":
    main()

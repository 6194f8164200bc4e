"""Lock-step in virtual time: a task of which a single process knows the bits, and runs of it in which servers, the chief and
workers die, one by one or together."""

import random
from functools import partial

import numpy as np

from paceline.core import kernels
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.values import Vector
from tests.support.virtual import Cluster, make_config
from tests.support.virtual_server import Server
from tests.support.virtual_time import Conditions

LENGTH, ROUNDS = 53, 27
SGD = Sgd(lr=0.01, momentum=0.9, weight_decay=1e-4)
DEATHS = ("server", "chief", "worker", "server and worker", "all")


class LeastSquares:
    """A small regression whose batches are a function of worker and clock, as the real ones are."""

    def __init__(self, seed: int, length: int) -> None:
        self.seed = seed
        self.length = length
        self.truth = np.random.default_rng(seed).standard_normal(length).astype(np.float32)

    def gradient(self, worker: str, clock: int, weights: Vector) -> Vector:
        rng = np.random.default_rng([self.seed, int(worker.rpartition("-")[2]), clock])
        features = rng.standard_normal((4, self.length)).astype(np.float32)
        return features.T @ (features @ (weights - self.truth)) / np.float32(4)


def single_process(task: LeastSquares, workers: list[str], rounds: int, examples: int, sgd: Sgd) -> Vector:
    """Gradient accumulation in worker order, with the kernels of the servers."""
    weights, slots = np.zeros(task.length, np.float32), sgd.new_slots(task.length)
    accumulated(task, weights, slots, dict.fromkeys(workers, 0), rounds, examples, sgd)
    return weights


def accumulated(
    task: LeastSquares,
    weights: Vector,
    slots: list[Vector],
    clocks: dict[str, int],
    rounds: int,
    examples: int,
    sgd: Sgd,
) -> None:
    """`rounds` of it from weights, slots and each worker's clock on, in place."""
    for step in range(1, rounds + 1):
        total = np.zeros_like(weights)
        for number, (worker, clock) in enumerate(clocks.items()):
            combine = kernels.add_scaled if number else kernels.scale_into
            combine(total, task.gradient(worker, clock + step, weights), float(examples))
        sgd.step(weights, weights, total, 1.0 / (examples * len(clocks)), sgd.lr, slots, step)


def trained(cluster: Cluster) -> tuple[set[int], Vector]:
    weights = np.empty(cluster.plan.total, np.float32)
    for server, place in zip(cluster.servers, cluster.places, strict=True):
        found = server.slice.pull()
        assert found is not None
        weights[place] = found.values
    return {server.slice.version for server in cluster.servers}, weights


def check_bits(seed: int) -> None:
    """One run with one to three deaths; AssertionError that names it where it does not end with the bits of the run in which
    nobody dies."""
    rng = random.Random(seed)
    names = [f"worker-{number}" for number in range(rng.choice([2, 3, 4]))]
    task, servers = LeastSquares(seed, LENGTH), rng.choice([2, 3])
    conditions = Conditions.drawn(rng, names, [0.0, 0.5])
    retain = rng.choice([None, 0, 2 * 4 * LENGTH])
    settings = {"workers": len(names), "servers": servers, "checkpoint": {"retain": retain}}
    config = make_config("bsp", batch_size=4, on_lost_worker="wait", **settings)
    cluster = Cluster(seed, config, task.gradient, SGD, LENGTH, ROUNDS, conditions)
    for name in names:
        cluster.start_worker(name)
    deaths = [(rng.choice(DEATHS), round(rng.uniform(0.3, 5.0), 2)) for _ in range(rng.choice([1, 2, 3]))]
    for what, when in deaths:
        _die(cluster, what, when, rng.choice(cluster.servers), rng.choice(names), rng)
    try:
        cluster.until_finished(600.0)
        versions, weights = trained(cluster)
        assert versions == {ROUNDS}, f"the servers ended at {versions}"
        assert weights.tobytes() == single_process(task, names, ROUNDS, 4, SGD).tobytes(), "other bits"
    except Exception as error:
        raise AssertionError(f"seed {seed}, lock-step, {deaths}, {settings}: {error}") from error


def _die(cluster: Cluster, what: str, when: float, server: Server, worker: str, rng: random.Random) -> None:
    """These die at that moment, and come back, each after a while."""
    servers = {"server": [server], "chief": cluster.servers[:1], "worker": [], "all": cluster.servers}.get(
        what, [server]
    )
    workers = {"worker": [worker], "server and worker": [worker], "all": list(cluster.workers)}.get(what, [])
    for one in servers:
        cluster.after(when, partial(_crash, one, rng.uniform(0.1, 2.0)))
    for name in workers:
        cluster.after(when, partial(cluster.crash_worker, name, rng.uniform(0.1, 2.0)))


def _crash(server: Server, seconds: float) -> None:
    if server.is_up:
        server.crash(seconds)

"""The same run as real processes and simulated: how long a step takes, how stale pushes are, how long workers wait."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from paceline.core.settings.config import Config
from paceline.reproduce.processes import Worked
from paceline.simulator.scene import Scene
from paceline.simulator.timing import Timed
from paceline.worker.training.emulated_slowness import Slowness

FAST = "100Gbit"


@dataclass(frozen=True, slots=True)
class Told:
    """What is compared."""

    step: float
    """Mean time from one push to the next (seconds)."""
    staleness: float
    """Mean over all pushes (versions)."""
    waited: float
    """Mean over all pushes (seconds)."""


def real_of(workers: Iterable[Worked]) -> Told:
    """What the processes have measured."""
    steps = [step for worker in workers for step in worker.trace]
    return Told(
        fmean(step.lasted for step in steps),
        fmean(step.staleness for step in steps),
        fmean(step.waited for step in steps),
    )


def simulated_of(found: Timed) -> Told:
    """The same of a simulation."""
    clocks = sum(worker.clock for worker in found.workers)
    spent = sum(worker.compute + worker.push + worker.wait + worker.pull for worker in found.workers)
    return Told(spent / clocks, found.staleness.mean, sum(worker.wait for worker in found.workers) / clocks)


def scene_of(config: Config, workers: Sequence[Worked]) -> Scene:
    """A scene with the figures of these workers: the mean and the spread of a computation without the pauses of `slow`, and
    the mean of an exchange without the policy's wait, half of it each way."""
    own, exchanges = list[float](), list[float]()
    for rank, worker in enumerate(workers):
        pauses = _pauses(config, rank, len(worker.trace))
        own += [step.computed - pause for step, pause in zip(worker.trace, pauses, strict=True)]
        exchanges += [max(0.0, step.lasted - step.computed - step.waited) for step in worker.trace]
    step = max(1e-6, fmean(own))
    return Scene(
        step=step,
        jitter=pstdev(own) / step,
        link=f"{FAST},{500 * fmean(exchanges):.6f}ms",
        service=0.0,
        service_per_million=0.0,
    )


def _pauses(config: Config, rank: int, steps: int) -> list[float]:
    """What `slow` has added to each of the worker's steps (seconds)."""
    found: list[float] = []
    slowness = Slowness(config.slow, rank, config.nominal_step, config.seed, found.append)
    for clock in range(1, steps + 1):
        before = len(found)
        slowness.delay(clock)
        if len(found) == before:
            found.append(0.0)
    return found

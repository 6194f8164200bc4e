"""The same run as real processes and simulated: how long a step takes, how stale pushes are, how long workers wait."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from paceline.core.settings.config import Config
from paceline.worker.training.emulated_slowness import Slowness
from paceline_papers.reproduce.processes import Stepped, Worked
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import Timed

FIRST = 3
"""A worker's first clocks, in which kernels are compiled on all workers at once: they count in the mean, not in the spread."""
FAST = "100Gbit"


USUAL = 3.0
"""Exchanges of up to this many times the median are usual ones. In lock-step a server takes pushes in the workers' order: who
waits for its turn does so before its push counts, and so within its exchange."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What is compared."""

    step: float
    """Mean time from one push to the next (seconds)."""
    staleness: float
    """Mean over all pushes (versions)."""
    waited: float
    """Mean over all pushes (seconds); of real workers, what a step takes beyond its computation and a usual exchange."""


def real_of(workers: Iterable[Worked]) -> StepTimes:
    """What the processes have measured."""
    steps = [step for worker in workers for step in worker.trace]
    usual, idle = usual_exchange(steps), [step.lasted - step.computed for step in steps]
    return StepTimes(fmean(step.lasted for step in steps), fmean(step.staleness for step in steps), fmean(idle) - usual)


def usual_exchange(steps: Sequence[Stepped]) -> float:
    """Mean of the usual exchanges, without the policy's wait (seconds)."""
    found = [step.lasted - step.computed - step.waited for step in steps]
    most = USUAL * max(0.0, median(found))
    return fmean(each for each in found if each <= most)


def simulated_of(found: Timed) -> StepTimes:
    """The same of a simulation."""
    clocks = sum(worker.clock for worker in found.workers)
    spent = sum(worker.compute + worker.push + worker.wait + worker.pull for worker in found.workers)
    return StepTimes(spent / clocks, found.staleness.mean, sum(worker.wait for worker in found.workers) / clocks)


def scene_of(config: Config, workers: Sequence[Worked]) -> Scene:
    """A scene with the figures of these workers: the mean and the spread of a computation without the pauses of `slow`, and
    the mean of a usual exchange, half of it each way."""
    own, later = list[float](), list[float]()
    for rank, worker in enumerate(workers):
        pauses = _pauses(config, rank, len(worker.trace))
        computed = [step.computed - pause for step, pause in zip(worker.trace, pauses, strict=True)]
        own += computed
        later += computed[FIRST:] or computed
    step, way = max(1e-6, fmean(own)), usual_exchange([step for worker in workers for step in worker.trace]) / 2
    return Scene(
        step=step,
        jitter=pstdev(later) / step,
        link=f"{FAST},{1000 * way:.6f}ms",
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

"""Runs processes side by side, as many as the cores allow."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.launch.forks.forker import Forker
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.cpu_cores import own_cores
from paceline.launch.this_machine.signals import Signals

POLL = 0.05
"""Seconds between two looks at the processes."""


@dataclass(slots=True)
class Job:
    """One process to run."""

    name: str
    arguments: list[str]
    """What follows `python -P`."""
    log: Path
    cores: int = 1
    """How many it can use."""
    forker: Forker | None = None
    """Starts it, if it can: quicker."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beyond that of all."""
    child: Child = field(init=False, repr=False)

    @property
    def can_start(self) -> bool:
        """Whether a start would not wait."""
        return self.forker is None or self.forker.is_ready

    def __post_init__(self) -> None:
        environment = {**child_environment(1), **self.environment}
        self.child = Child(self.name, "job", self.arguments, self.log, environment, forker=self.forker)


def run_jobs(
    jobs: Sequence[Job],
    cores: int,
    ended: Callable[[Job, int], None],
    started: Callable[[Job], None] = lambda job: None,
) -> int | None:
    """Starts the jobs in their order, the next one as soon as its cores are free, or alone where there are not as many; each
    is kept to its cores. `ended` gets each with its exit code. Returns None, or the exit code of a Ctrl-C or SIGTERM, after
    which no job is left. Call it from the main thread."""
    waiting, running = list(jobs), list[Job]()
    free = list(itertools.islice(itertools.cycle(sorted(own_cores())), cores))
    with Signals() as signals:
        try:
            while (waiting or running) and signals.exit_code is None:
                while waiting and (waiting[0].cores <= len(free) or not running) and waiting[0].can_start:
                    job = waiting.pop(0)
                    job.child.cores = free[: job.cores]
                    free = free[job.cores :]
                    job.child.start()
                    running.append(job)
                    started(job)
                for job in [job for job in running if not job.child.running]:
                    running.remove(job)
                    free += job.child.cores
                    assert job.child.code is not None
                    ended(job, job.child.code)
                time.sleep(POLL)
            return signals.exit_code
        finally:
            end_all([job.child for job in running], signals.hurry)

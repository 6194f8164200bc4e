"""What Slurm tells a task of its job: how much it has, and where it finds its run."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paceline.base.private import write_private
from paceline.core.errors import ConfigError, ServersGone
from paceline.launch.this_machine.processors import VISIBLE, visible_gpus

JOB, SUBMIT = "SLURM_JOB_ID", "SLURM_SUBMIT_DIR"
NODE, TASK = "SLURMD_NODENAME", "SLURM_PROCID"
GPUS = "SLURM_GPUS_ON_NODE"
CPUS = "SLURM_CPUS_PER_TASK"
RESTARTS = "SLURM_RESTART_COUNT"
"""How often the job was requeued: its number stays the same."""
WAIT = 300.0
"""Longest that tasks wait for their job's run to begin (seconds)."""


class SlurmTask(NamedTuple):
    """This task, as Slurm describes it."""

    job: str
    name: str
    """Node, and the task's number where the job has several on a node."""
    workers: int
    """One for each of its GPUs; without GPUs one, with all its CPUs."""
    folder: Path
    """That the job was submitted from."""
    cpus: int | None = None
    """For all of its workers; None: nobody says."""
    restarts: int = 0

    @property
    def file(self) -> Path:
        """What the head of the job writes for the other tasks: address and key. A requeued job has another one, for a head that
        was killed leaves its own behind."""
        return self._file(self.restarts)

    @property
    def stale(self) -> list[Path]:
        """Those that its earlier starts may have left."""
        return [self._file(before) for before in range(self.restarts)]

    def _file(self, restarts: int) -> Path:
        return self.folder / f"paceline-{self.job}{f'-{restarts}' if restarts else ''}.join"


def this_task(environment: Mapping[str, str]) -> SlurmTask | None:
    """None outside of a job."""
    job = environment.get(JOB)
    if not job:
        return None
    node, number = environment.get(NODE, "node"), environment.get(TASK, "0")
    return SlurmTask(
        job=job,
        name=f"{node}-{number}",
        workers=max(1, _gpus(environment)),
        folder=Path(environment.get(SUBMIT) or Path.cwd()),
        cpus=_count(environment, CPUS) or None,
        restarts=_count(environment, RESTARTS),
    )


def wait_for_run(
    task: SlurmTask, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> tuple[str, str]:
    """Address and key of the job's run, once its head has written them. ServersGone: it never did; ConfigError: the
    file holds something else."""
    waited = 0.0
    while not task.file.exists():
        if not waited:
            say(f"waiting for {task.file}, which the run of this job writes when it listens")
        if waited >= WAIT:
            raise ServersGone(
                f"There was no {task.file} within {WAIT:.0f} s. Start the run first, in the same job and in the "
                "folder where you submitted the job: paceline launch --listen ... &"
            )
        sleep(1.0)
        waited += 1.0
    words = task.file.read_text().split()
    if len(words) != 2:
        raise ConfigError(
            f"{task.file} holds {len(words)} words; expected an address and a key. Is the file from an older job?"
        )
    return words[0], words[1]


@contextmanager
def told_to_tasks(environment: Mapping[str, str], where: str, key: str) -> Iterator[Path | None]:
    """In a job, the file with address and key, which exists while this is open; None outside of one."""
    task = this_task(environment)
    if task is None:
        yield None
        return
    file = task.file
    draft = file.with_suffix(".new")
    try:
        write_private(draft, f"{where} {key}\n".encode())
        draft.replace(file)
    except OSError as error:
        raise ConfigError(f"Can't write {file} for the other tasks of this job: {error.strerror}.") from error
    for stale in task.stale:
        stale.unlink(missing_ok=True)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _gpus(environment: Mapping[str, str]) -> int:
    """GPUs of this task."""
    if VISIBLE in environment:
        return len(visible_gpus(environment, Path("/dev")))
    return _count(environment, GPUS)


def _count(environment: Mapping[str, str], name: str) -> int:
    given = environment.get(name, "0")
    return int(given) if given.isdecimal() else 0

"""What a machine lends if nobody says how much."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from paceline.base.variables import KEY
from paceline.core.errors import UsageError
from paceline.launch.other_machines.agent import Offer
from paceline.launch.other_machines.slurm import SlurmTask
from paceline.launch.this_machine.cpu_cores import cores
from paceline.launch.this_machine.gpus import visible_gpus


def make_offer(
    workers: int | None,
    servers: int,
    device: str,
    address: str,
    name: str,
    task: SlurmTask | None,
) -> tuple[Offer, str]:
    """The offer, and why it is this many workers. UsageError: nothing is offered."""
    chosen, why = (workers, "as you said") if workers is not None else _workers(device, task)
    if chosen < 0 or servers < 0 or not chosen + servers:
        raise UsageError(f"-w {chosen} -s {servers}: a machine must lend at least one worker or server to join a run.")
    called = name or (task.name if task is not None else socket.gethostname())
    cpus = task.cpus if task is not None else None
    return Offer(name=called, workers=chosen, servers=servers, device=device, address=address, cpus=cpus), why


def _workers(device: str, task: SlurmTask | None) -> tuple[int, str]:
    if task is not None:
        return task.workers, f"task of Slurm job {task.job}"
    gpus = 0 if device == "cpu" else len(visible_gpus(os.environ, Path("/dev")))
    if gpus:
        return gpus, f"one for each of its {gpus} GPUs"
    return cores(), f"one for each of its {cores()} cores"


def read_key(given: str | None, environment: Mapping[str, str]) -> str:
    """What --key or PACELINE_KEY says; '-' is the first line of stdin. UsageError: there is none."""
    found = given or environment.get(KEY) or ""
    if found == "-":
        found = sys.stdin.readline()
    if not found.strip():
        raise UsageError(
            f"The key is missing. Give the key that the run printed: --key KEY, or {KEY} in the environment."
        )
    return found

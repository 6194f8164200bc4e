"""[Actors]' training with real processes, as `paceline run` starts them, and in virtual time from the same first weights:
python -m experiments.actors_processes [--help]"""

import json
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Self
from urllib.request import urlopen

import numpy as np
import typer

from paceline.core.errors import PacelineError
from paceline.core.settings.config import Options
from paceline.exits import exits
from paceline.local.launcher import run_local
from paceline.local.read_config import complete
from paceline.local.run_folder import RunFolder, open_run
from paceline.reproduce.actors_virtual import LENGTH, SERVERS, Centralised, Decentralised, Setting
from paceline.reproduce.xor_runs import FORMS, broadcast
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica

TASK = str(Path(__file__).parents[1] / "examples" / "actors_xor.py")
RATE = 0.5
RECEIVED = re.compile(r"^paceline_worker_peer_received_bytes_total(?:\{.*\})? (\S+)$", re.MULTILINE)
EVERY = 0.01
"""Seconds from one question to the next: training 150 examples takes a tenth of a second."""
BYTES = 8
"""Of a value and its place."""


def compare(out: Path, workers: int, examples: int, policies: Sequence[Options], delay: float, seed: int = 0) -> None:
    """Prints a line for the centralised run and for each of these policies, with `workers` workers of `examples` examples."""
    print(
        f"XOR, 2-2-1, {workers} workers of {examples:,} examples, one epoch, rate {RATE:g}, delay {delay:g}, seed {seed}\n"
    )
    print("| training | processes: error | virtual: error | processes: updates | virtual: updates |")
    print("|---|---|---|---|---|", flush=True)
    first = Replica(load_task(TASK), seed=seed).local.copy()
    corners = np.random.default_rng(seed).integers(0, 4, (workers, examples))
    setting = Setting(corners, [first] * workers, delay, seed)
    for policy in (Options(name="asp"), *policies):
        is_central = policy.name == "asp"
        real_error, real_updates = _real(out, workers, examples, policy, seed)
        virtual = Centralised(setting, RATE) if is_central else Decentralised(setting, RATE, policy)
        found = virtual.run()
        name = "centralised" if is_central else f"tau {policy.options['tau']:g}"
        print(
            f"| {name} | {real_error:.3f} | {found.of_mean:.3f} | {real_updates:,.0f} | {found.updates:,.0f} |",
            flush=True,
        )


def _real(out: Path, workers: int, examples: int, policy: Options, seed: int) -> tuple[float, float]:
    """Error of the servers' model, or the mean of the workers' models, and updates. PacelineError: the run failed."""
    is_central = policy.name == "asp"
    tau = "" if is_central else f"-tau-{policy.options['tau']:g}".replace(".", "-")
    settings: dict[str, Any] = {
        "run": f"{policy.name}{tau}-{workers}-{examples}",
        "task": TASK,
        "data": {"path": str(workers * examples)},
        "workers": workers,
        "servers": SERVERS if is_central else 0,
        "policy": {"name": policy.name, **policy.options},
        "plan": {"slices": "layerwise"},
        "optimizer": {"lr": RATE},
        "seed": seed,
        "budget": "per_worker",
        "checkpoint": {"every": 60.0},
        "restarts": 0,
    }
    place, config = open_run(complete(settings), fresh=True, runs=out)
    with _Counted(place, workers) as counted:
        outcome = run_local(config, place.path, lambda line: None)
    if outcome.exit_code:
        raise PacelineError(f"Run {place.name} ended with exit code {outcome.exit_code}: {outcome.reason}.")
    pulled = (examples + 1) * LENGTH  # of each worker: the first weights, and what each push is answered with
    return outcome.metrics["test_squared_error"], pulled if is_central else counted.mean


class _Counted:
    """How many values workers have taken from one another, asked of their metrics all the time; they stay until the
    run is scored, so only what comes in the last moment may be missed."""

    def __init__(self, place: RunFolder, workers: int) -> None:
        self._reports = [place.ports(f"worker-{rank}") for rank in range(workers)]
        self._counts = [0.0] * workers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="counted", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def mean(self) -> float:
        """Over the workers."""
        return mean(self._counts)

    def _listen(self) -> None:
        while not self._over.wait(EVERY):
            for rank, report in enumerate(self._reports):
                with suppress(OSError, ValueError):  # it does not exist yet, or no longer
                    port = json.loads(report.read_text())["metrics_port"]
                    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
                        found = RECEIVED.search(answer.read().decode())
                    if found:
                        self._counts[rank] = float(found[1]) / BYTES


def main(
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/actors"),
    workers: Annotated[int, typer.Option(min=1, help="Processes that train, each with its data shard.")] = 5,
    examples: Annotated[int, typer.Option(min=1, help="Examples of each data shard.")] = 2000,
    taus: Annotated[
        list[float] | None, typer.Option("--tau", help="May be repeated; 0.1, 0.5, 1 and 2 if not.")
    ] = None,
    delay: Annotated[
        float, typer.Option(min=0, help="In virtual time: mean time that a message is under way (steps).")
    ] = 1.0,
) -> None:
    """Prints a Markdown table, a line as soon as a run is done."""
    policies = [broadcast(tau, FORMS["paper"].own) for tau in taus or (0.1, 0.5, 1.0, 2.0)]
    compare(out, workers, examples, policies, delay)


if __name__ == "__main__":
    with exits("actors_processes"):
        typer.run(main)

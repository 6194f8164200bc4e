"""[Actors]' training with real processes, as `paceline run` starts them, and in virtual time from the same first weights: what
papers/docs/actors.md says of both."""

import json
import re
import threading
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any, Self
from urllib.request import urlopen

import numpy as np
from matplotlib.figure import Figure

from paceline.core.settings.config import Options
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.settings.read_config import complete
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica
from paceline_papers.reproduce import tasks
from paceline_papers.reproduce.actors_virtual import ASP, LENGTH, SERVERS, Experiment, Setting
from paceline_papers.reproduce.claims import Above, Apart, Between
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.real_runs import check_finished, run_small
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.xor_runs import DELAY, FORMS, broadcast

TASK = Path(tasks.__path__[0]) / "actors_xor.py"
WORKERS, EXAMPLES, RATE = 5, 2000, 0.5
CENTRAL = "centralised"
TAUS = (0.1, 1.0)
POLICIES = {CENTRAL: ASP, **{f"tau = {tau:g}": broadcast(tau, FORMS["paper"].own) for tau in TAUS}}
RECEIVED = re.compile(r"^paceline_worker_peer_received_bytes_total(?:\{.*\})? (\S+)$", re.MULTILINE)
EVERY = 0.01
"""Seconds from one question to the next: training 150 examples takes a tenth of a second."""
BYTES = 8
"""Of a value and its place."""
WAYS = {"processes": "", "virtual time": "virtual-"}


def run(around: Around, name: str, seed: int) -> Figures:
    return compared(around.folder, POLICIES[name], seed)


def compared(folder: Path, policy: Options, seed: int, workers: int = WORKERS, examples: int = EXAMPLES) -> Figures:
    """Error and updates in real processes and in virtual time: of the servers' model, or of the mean of the workers'."""
    error, updates = _real(folder, workers, examples, policy, seed)
    first = Replica(load_task(str(TASK)), seed=seed).local.copy()
    corners = np.random.default_rng(seed).integers(0, 4, (workers, examples))
    setting = Setting(corners, [first] * workers, DELAY, seed)
    found = Experiment(setting, RATE, policy).run()
    return {"error": error, "virtual-error": found.of_mean, "updates": updates, "virtual-updates": found.updates}


def _real(folder: Path, workers: int, examples: int, policy: Options, seed: int) -> tuple[float, float]:
    """PacelineError: the run failed; KeyboardInterrupt or Stopped: it was ended."""
    is_central = policy == ASP
    tau = "" if is_central else f"-tau-{policy.options['tau']:g}".replace(".", "-")
    settings: dict[str, Any] = {
        "run": f"{policy.name}{tau}-{seed}",
        "task": str(TASK),
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
    place, config = open_run(complete(settings), fresh=True, runs=folder)
    with _Counted(place, workers) as counted:
        outcome = run_small(config, place)
    check_finished(place, outcome)
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


def draw(runs: Runs) -> Figure:
    rows = [row for row in POLICIES if row != CENTRAL]
    panel = {way: [runs.of(row, f"{kind}error") for row in rows] for way, kind in WAYS.items()}
    return lines({"": panel}, TAUS, "tau", "error of the mean model", log=True)


RECIPE = Recipe(
    number="Actors in processes",
    shows="error and updates of [Actors]' training in real processes and in virtual time",
    small=f"XOR with {WORKERS} workers of {EXAMPLES:,} examples, one epoch, rate {RATE:g}.",
    rows=list(POLICIES),
    columns={
        "error": Column("processes: error", ".3f"),
        "virtual-error": Column("virtual: error", ".3f"),
        "updates": Column("processes: updates", ",.0f"),
        "virtual-updates": Column("virtual: updates", ",.0f"),
    },
    run=run,
    draw=draw,
    claims=[
        Between(
            "centralised: as many updates as in the paper",
            {Verdict.AGREES: "Nine values for each of 2,000 pushes and for the first weights."},
            "updates",
            CENTRAL,
            18008.5,
            18009.5,
        ),
        *(
            Apart(
                f"{row}: the errors of processes and of virtual time are within .1",
                {
                    Verdict.AGREES: "The same policy trains in both.",
                    Verdict.CANNOT: "Their data and schedules differ, and some seeds do not solve XOR.",
                },
                "error",
                row,
                row,
                "virtual-error",
                low=-0.1,
                high=0.1,
            )
            for row in POLICIES
        ),
        *(
            Above(
                f"{way}: tau 0.1 has more updates than tau 1",
                {Verdict.AGREES: "A larger sum takes longer to gather, and much of it cancels out."},
                f"{kind}updates",
                "tau = 0.1",
                "tau = 1",
            )
            for way, kind in WAYS.items()
        ),
    ],
    minutes=11,
    seeds=3,
)

"""Two workers leave a run and one joins it ([Hogwild] II-D): what papers/docs/hogwild.md says of it. Real processes; SIGTERM to
two of four workers at a quarter of the examples, and another worker at half of them, which replaces one."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from paceline.core.errors import PacelineError
from paceline.core.explain.cause import Finding
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.forks.forker import Forker
from paceline.launch.settings.read_config import complete
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.this_machine.child_environment import child_environment
from paceline.results.result import Result
from paceline.rpc.enums import phase_of
from paceline.sharder.sharding import make_shards
from paceline.v1.run_service_pb2 import StatusReply
from paceline_papers.reproduce.claims import Apart, Between
from paceline_papers.reproduce.hogwild_races import MODES, settings
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.rcv1_runs import rows_like_rcv1
from paceline_papers.reproduce.real_runs import check_finished, loaded, run_small
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict

EVERY: Mapping[str, Mapping[str, Any]] = {**MODES, "hogwild": {"policy": {"name": "asp"}, "svm": {"stop": "own"}}}
"""As published; and every push at once."""
CALM, CHANGING = "undisturbed", "two leave, one joins"
WORKERS, LEAVERS, JOINER = 4, ("worker-1", "worker-2"), 4
EXAMPLES, EPOCHS = 3000, 15
ROUNDS = 1024
"""Examples of two rounds: what may be counted beyond the end."""


def row(mode: str, kind: str) -> str:
    return f"{mode}, {kind}"


ROWS = {row(mode, kind): (mode, kind) for mode, kind in product(EVERY, (CALM, CHANGING))}


def run(around: Around, name: str, seed: int) -> Figures:
    mode, kind = ROWS[name]
    data = rows_like_rcv1(around.folder / f"rows-{seed}", seed, EXAMPLES)
    called = f"{mode}-{'changing' if kind == CHANGING else 'calm'}-{seed}"
    place = trained(around.folder, settings(EVERY[mode], data, WORKERS), called, seed, kind)
    result, last = Result(place.path), place.last_status()
    return {
        "beyond": last["examples"] - last["budget"],
        "seconds": result.seconds,
        "accuracy": 100 * result.metrics["test_accuracy"],
        "loss": result.metrics["test_loss"],
    }


def trained(folder: Path, own: Mapping[str, Any], name: str, seed: int, kind: str) -> RunFolder:
    """The finished run. PacelineError: it failed; KeyboardInterrupt or Stopped: it was ended."""
    place, config, shards = prepared(folder, own, name, seed, EPOCHS)
    with closing(Disturbance(place, shards, loaded(config).get("worker"))) as disturbance:
        watch = disturbance.watch if kind == CHANGING else lambda status, rate, causes: None
        outcome = run_small(config, place, watch, shards=shards)
    check_finished(place, outcome)
    if kind == CHANGING:
        disturbance.check()
    return place


def prepared(folder: Path, own: Mapping[str, Any], name: str, seed: int, epochs: int) -> tuple[RunFolder, Config, Path]:
    """The folder of the run to train, its settings and its shards."""
    wanted = {**own, "run": name, "epochs": epochs, "seed": seed, "checkpoint": {"every": 60.0}}
    place, config = open_run(complete(wanted, preset="hogwild"), fresh=True, runs=folder / "runs")
    shards = folder / f"shards-{seed}"
    make_shards(config, shards)
    return place, config, shards


class Disturbance:
    """Tells two workers to leave and starts another, at shares of the run's examples."""

    leave, join = 0.25, 0.5
    """When it does, of the examples that the run is to count."""

    def __init__(self, place: RunFolder, shards: Path, forker: Forker | None = None) -> None:
        """`forker`: starts the other worker at once; a new process imports for seconds, and the run may end meanwhile."""
        self._place = place
        self._shards = shards
        self._forker = forker
        self._have_left = False
        self._joiner: Child | None = None
        self.has_joined = False
        """Whether the other worker has become a member."""

    def watch(self, status: StatusReply, rate: float, causes: Sequence[Finding]) -> None:
        """Acts on what the chief says. PacelineError where the worker that was to join has failed."""
        if self._joiner is not None and self._joiner.poll():
            raise PacelineError(f"{self._joiner.name} {self._joiner.how_it_ended()}. It said:{self._joiner.tail()}")
        if phase_of(status) != "training" or not status.budget:
            return
        if not self._have_left and status.examples >= self.leave * status.budget:
            self._have_left = True
            for worker in LEAVERS:
                os.kill(self._place.facts()["pids"][worker], signal.SIGTERM)
        if self._joiner is None and status.examples >= self.join * status.budget:
            self._joiner = self._started()
        self.has_joined |= any(worker.member for worker in status.workers if worker.worker == f"worker-{JOINER}")

    def check(self) -> None:
        """PacelineError where the other worker came too late."""
        if not self.has_joined:
            raise PacelineError(
                f"worker-{JOINER} was not ready before the run ended, so nobody joined it. The machine is too busy: try again."
            )

    def close(self) -> None:
        """No process is left after this."""
        if self._joiner is not None:
            end_all([self._joiner])

    def _started(self) -> Child:
        name, place = f"worker-{JOINER}", self._place
        told = {
            "config": place.config,
            "rank": JOINER,
            "shards": self._shards,
            "servers": ",".join(place.facts()["servers"]),
            "token-file": place.token,
        }
        command = ["-m", "paceline.worker", *(str(word) for key, said in told.items() for word in (f"--{key}", said))]
        child = Child(name, "worker", command, place.log(name), child_environment(1), forker=self._forker)
        child.start()
        return child


def draw(runs: Runs) -> Figure:
    shown = ("accuracy", "seconds")
    return spreads({RECIPE.columns[name].name: {row: runs.of(row, name) for row in ROWS} for name in shown})


RECIPE = Recipe(
    number="Leaving workers",
    shows="examples, time and accuracy when two of four workers leave and one joins",
    small=f"{EXAMPLES:,} made-up rows like RCV1's, one server, {WORKERS} workers, {EPOCHS} epochs, as real processes.",
    rows=list(ROWS),
    columns={
        "beyond": Column("examples counted beyond the end", ".0f"),
        "seconds": Column("seconds", ".1f"),
        "accuracy": Column("accuracy (%)", ".2f"),
        "loss": Column("loss"),
    },
    run=run,
    draw=draw,
    claims=[
        *(
            Between(
                f"{mode}: two leave and one joins, and the run counts its examples, at most two rounds more",
                {
                    Verdict.AGREES: "Those who are left take more of them; what is under way at the end is counted, too.",
                    Verdict.CANNOT: "How much is under way at the end differs from run to run.",
                },
                "beyond",
                row(mode, CHANGING),
                0,
                ROUNDS,
            )
            for mode in EVERY
        ),
        *(
            Apart(
                f"{mode}: two leave and one joins, and accuracy is at most a point lower",
                {
                    Verdict.AGREES: "A shard that nobody has any more is a quarter of rows that are much alike.",
                    Verdict.CANNOT: "Runs this short end while accuracy still jumps: the seeds differ by more than a point.",
                },
                "accuracy",
                row(mode, CHANGING),
                row(mode, CALM),
                low=-1.0,
                high=inf,
            )
            for mode in EVERY
        ),
    ],
    minutes=4,
    seeds=3,
)

"""[Hogwild]'s modes while workers leave and join, with real processes on an RCV1-like set: python -m experiments.hogwild
[--help]"""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.hogwild_pictures import Curve, Disturbed, members_over_time
from experiments.options import among
from paceline.core.errors import PacelineError
from paceline.core.settings.config import Config
from paceline.data.rcv1_like import TRAIN_ROWS
from paceline.data.shards import is_there
from paceline.exits import exits
from paceline.local.child_environment import child_environment
from paceline.local.children import Child, end_all
from paceline.local.launcher import run_local
from paceline.local.read_config import complete
from paceline.local.run_folder import RunFolder, open_run
from paceline.reproduce.hogwild_races import BATCHES, PAUSE, settings
from paceline.reproduce.hogwild_races import MODES as PUBLISHED
from paceline.reproduce.rcv1_runs import rows_like_rcv1
from paceline.result import Result
from paceline.sharder.sharding import make_shards
from paceline.v1.run_service_pb2 import StatusReply

MODES: dict[str, Mapping[str, Any]] = {
    "sync": PUBLISHED["synchronous"],
    "async": PUBLISHED["asynchronous"],
    "hogwild": {"policy": {"name": "asp"}, "svm": {"stop": "own"}},
}
"""sync and async as published; hogwild applies every push at once."""
POOL, LEAVERS, JOINER = 4, ("worker-1", "worker-2"), 4
"""The run with changing members: how many begin, who leaves, and the number of the one that joins."""
LEAVE, JOIN = 0.25, 0.5
"""When they do, as shares of the examples that the run is to count."""


def main(
    out: Annotated[
        Path, typer.Option(help="Folder of data, runs and figures; what is finished is kept. One for each setting.")
    ] = (Path("runs/hogwild")),
    rows: Annotated[int, typer.Option(min=1, help="Training rows, and as many to test on.")] = TRAIN_ROWS,
    modes: Annotated[str, typer.Option(help="Which of sync, async and hogwild, with commas.")] = ",".join(MODES),
    length: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 20,
) -> None:
    """Prints one line of a Markdown table as soon as a run is done, and writes the figure as PNG."""
    chosen = among(modes, MODES, "--modes")
    study = Study(out, rows_like_rcv1(out / f"data-{rows}", 0, rows))
    print(f"RCV1-like, {rows:,} training and as many test rows, 1 server, seed 0\n")
    changing_members(study, chosen, length)


class Study:
    """Runs on one data set in one folder; those that are finished are not repeated."""

    def __init__(self, out: Path, data: Path) -> None:
        self.out = out
        self._data = data

    def config(self, name: str, mode: str, epochs: int, batches: int = BATCHES, pause: float = PAUSE) -> Config:
        """The settings of a run whose pushes hold `batches` mini-batches, each with a `pause` (seconds)."""
        wanted = settings(MODES[mode], self._data, POOL, batches, pause)
        wanted |= {"run": name, "epochs": epochs, "checkpoint": {"every": 60.0}}
        return complete(wanted, preset="hogwild")

    def run(self, config: Config, watch: Callable[[StatusReply, float], None] = lambda status, rate: None) -> RunFolder:
        """Trains unless that is done; `watch` is called twice a second. PacelineError where the run fails."""
        finished = RunFolder(self.out / str(config.run)).facts().get("finished", False)
        place, config = open_run(config, fresh=not finished, runs=self.out)
        if not finished:
            outcome = run_local(config, place.path, lambda line: None, watch, shards=self.shards(config))
            if outcome.exit_code:
                raise PacelineError(f"Run {place.name} ended with exit code {outcome.exit_code}: {outcome.reason}.")
        return place

    def shards(self, config: Config) -> Path:
        """The shards for this number of workers, written once."""
        folder = self._data / f"shards-{config.workers}-s{config.seed}"
        if not is_there(folder):
            make_shards(config, folder)
        return folder


def changing_members(study: Study, modes: Sequence[str], length: int) -> None:
    """Each mode without and with two workers that leave and one that joins."""
    print(f"{POOL} workers, {length} epochs; a push: {BATCHES} mini-batches, {1000 * PAUSE:g} ms each\n")
    print("| mode | run | members | examples counted | to be counted | seconds | test accuracy | test loss |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, Disturbed] = {}
    for mode in modes:
        calm = study.config(f"calm-{mode}", mode, length)
        places = {"undisturbed": study.run(calm), "two leave, one joins": disturbed(study, calm, f"changing-{mode}")}
        curves = {name: curve_of(place) for name, place in places.items()}
        for name, place in places.items():
            metrics, curve = Result(place.path).metrics, curves[name]
            print(
                f"| {mode} | {name} | {_in_turn(curve.members)} | {curve.examples[-1]:,} "
                f"| {place.last_status()['budget']:,} | {Result(place.path).seconds:.1f} "
                f"| {metrics['test_accuracy']:.4f} | {metrics['test_loss']:.4f} |",
                flush=True,
            )
        found[mode] = Disturbed(curves["undisturbed"], curves["two leave, one joins"])
    (study.out / "members.png").write_bytes(members_over_time(found))


def disturbed(study: Study, config: Config, name: str) -> RunFolder:
    """The same run, which two workers leave and one joins."""
    config = config.model_copy(update={"run": name})
    with closing(Disturbance(RunFolder(study.out / name), study.shards(config))) as disturbance:
        return study.run(config, disturbance.watch)


class Disturbance:
    """Tells two workers to leave and starts another, at shares of the run's examples."""

    def __init__(self, place: RunFolder, shards: Path) -> None:
        self._place = place
        self._shards = shards
        self._have_left = False
        self._joiner: Child | None = None

    def watch(self, status: StatusReply, rate: float) -> None:
        """Acts on what the chief says. PacelineError where the worker that was to join has failed."""
        if self._joiner is not None and self._joiner.poll():
            raise PacelineError(f"{self._joiner.name} {self._joiner.how_it_ended()}. It said:{self._joiner.tail()}")
        if status.phase != "training" or not status.budget:
            return
        if not self._have_left and status.examples >= LEAVE * status.budget:
            self._have_left = True
            for worker in LEAVERS:
                os.kill(self._place.facts()["pids"][worker], signal.SIGTERM)
        if self._joiner is None and status.examples >= JOIN * status.budget:
            self._joiner = self._join()

    def close(self) -> None:
        """No process is left after this."""
        if self._joiner is not None:
            end_all([self._joiner])

    def _join(self) -> Child:
        name, place = f"worker-{JOINER}", self._place
        command = [
            "-m",
            "paceline.worker",
            "--config",
            place.config,
            "--rank",
            JOINER,
            "--shards",
            self._shards,
            "--servers",
            ",".join(place.facts()["servers"]),
            "--token-file",
            place.token,
        ]
        child = Child(name, "worker", [str(word) for word in command], place.log(name), child_environment(1))
        child.start()
        return child


def curve_of(place: RunFolder) -> Curve:
    """How a run went along: members and examples while it trained, test accuracy after each epoch that was scored."""
    statuses = [json.loads(line) for line in place.metrics.read_text().splitlines()]
    trained, end = [status for status in statuses if status["phase"] == "training"], statuses[-1]
    members = [sum(worker["member"] for worker in status["workers"]) for status in trained]
    return Curve(
        [status["seconds"] for status in [*trained, end]],
        [*members, members[-1]],
        [status["examples"] for status in [*trained, end]],
        [(score.seconds, score.metrics["test_accuracy"]) for score in Result(place.path).history if score.epoch],
    )


def _in_turn(members: Sequence[int]) -> str:
    """'4, 2, 3' for all that there were, each once until it changes."""
    return ", ".join(str(count) for place, count in enumerate(members) if not place or count != members[place - 1])


if __name__ == "__main__":
    with exits("hogwild"):
        typer.run(main)

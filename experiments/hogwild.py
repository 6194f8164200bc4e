"""[Hogwild]'s figures with real processes on an RCV1-like set: python -m experiments.hogwild [--help]"""

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from experiments.hogwild_pictures import (
    Curve,
    Disturbed,
    Epochs,
    Line,
    Pace,
    loss_curves,
    members_over_time,
    time_by_workers,
)
from experiments.options import among
from paceline.core.errors import PacelineError, UsageError
from paceline.core.settings.config import Config
from paceline.data.rcv1 import TOPICS
from paceline.data.rcv1_like import TRAIN_ROWS, rcv1_like, write_lyrl2004
from paceline.data.shards import is_there
from paceline.exits import exits
from paceline.local.child_environment import child_environment
from paceline.local.children import Child, end_all
from paceline.local.launcher import run_local
from paceline.local.read_config import complete
from paceline.local.run_folder import RunFolder, open_run
from paceline.result import Result
from paceline.sharder.sharding import make_shards
from paceline.v1.run_service_pb2 import StatusReply

MODES: dict[str, dict[str, Any]] = {
    "sync": {"policy": {"name": "bsp"}, "svm": {"stop": "all"}},
    "async": {"policy": {"name": "everyone", "merge": "overwrite"}, "svm": {"stop": "own"}},
    "hogwild": {"policy": {"name": "asp"}, "svm": {"stop": "own"}},
}
"""sync and async as published; hogwild applies every push at once."""
POOL, LEAVERS, JOINER = 4, ("worker-1", "worker-2"), 4
"""The run with changing members: how many begin, who leaves, and the number of the one that joins."""
LEAVE, JOIN = 0.25, 0.5
"""When they do, as shares of the examples that the run is to count."""
PARTS = ("time", "members")


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting of the time against workers."""

    pace: Pace
    mode: str
    workers: int

    def name(self, seed: int) -> str:
        """Of its run's folder."""
        pace = re.sub(r"[^a-z0-9]+", "-", self.pace.told)
        return f"{self.mode}-{self.workers}-{pace}-s{seed}"


def main(
    out: Annotated[
        Path, typer.Option(help="Folder of data, runs and figures; what is finished is kept. One for each setting.")
    ] = (Path("runs/hogwild")),
    rows: Annotated[int, typer.Option(min=1, help="Training rows.")] = TRAIN_ROWS,
    tests: Annotated[int, typer.Option(min=1, help="Test rows.")] = TRAIN_ROWS,
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "1,2,4,6,8",
    modes: Annotated[str, typer.Option(help="Which of sync, async and hogwild, with commas.")] = ",".join(MODES),
    paces: Annotated[
        str,
        typer.Option(
            help="What a push is made of, with commas: mini-batches (as published: 1), :SECONDS of emulated computation of "
            "each, and :5x@10% for one push in ten, at random, that takes five times as long."
        ),
    ] = "1,8:0.002,8:0.002:5x@10%",
    epochs: Annotated[int, typer.Option(min=2, help="Most epochs of a run; they stop early as published.")] = 60,
    length: Annotated[int, typer.Option(min=1, help="Epochs of the runs with changing members.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with seeds 0, 1, ...")] = 1,
    parts: Annotated[str, typer.Option(help="Which of time (and loss) and members, with commas.")] = ",".join(PARTS),
) -> None:
    """Prints one line of a Markdown table as soon as a cell's runs are done, and writes the figures as PNG."""
    chosen, wanted = among(modes, MODES, "--modes"), among(parts, PARTS, "--parts")
    counts, every = _numbers(workers, int, 1), [_pace(given) for given in paces.split(",")]
    study = Study(out, written(out, rows, tests))
    print(f"RCV1-like, {rows:,} training and {tests:,} test rows, 1 server, seeds 0 to {seeds - 1}\n")
    if "time" in wanted:
        cells = [Cell(*found) for found in product(every, chosen, counts)]
        time_and_loss(study, cells, epochs, range(seeds))
    if "members" in wanted:
        changing_members(study, chosen, every[-1], length)


class Study:
    """Runs on one data set in one folder; those that are finished are not repeated."""

    def __init__(self, out: Path, data: Path) -> None:
        self.out = out
        self._data = data

    def config(self, name: str, mode: str, workers: int, pace: Pace, seed: int = 0, **more: Any) -> Config:
        """The settings of a run."""
        own = MODES[mode]
        stalls = {str(place): pace.stalls for place in range(workers)} if pace.stalls else {}
        settings: dict[str, Any] = {
            "run": name,
            "task": "rcv1",
            "data": {"path": str(self._data)},
            "workers": workers,
            "servers": 1,
            "policy": own["policy"],
            "seed": seed,
            "svm": own["svm"] | {"batches": pace.batches, "stopping": None} | more.pop("svm", {}),
            "slow": {"all": "2x"} | stalls if pace.step else {},
            "nominal_step": pace.step * pace.batches,
            "checkpoint": {"every": 60.0},
            "restarts": 0,
        }
        return complete(settings | more, preset="hogwild")

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


def written(out: Path, rows: int, tests: int) -> Path:
    """The folder with the data, as RCV1's authors publish theirs; made if it is missing."""
    folder = out / f"data-{rows}-{tests}"
    if not (folder / TOPICS).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_lyrl2004(rcv1_like(rows, tests), folder)
    return folder


def time_and_loss(study: Study, cells: Sequence[Cell], epochs: int, seeds: Iterable[int]) -> None:
    """Time to the end against workers, and the losses at the first pace with the most workers."""
    print("| a push | mode | workers | seconds | epochs | test accuracy | staleness |")
    print("|---|---|---|---|---|---|---|", flush=True)
    lines: dict[Pace, dict[str, Line]] = {}
    losses: dict[str, Epochs] = {}
    for cell in cells:
        places = [
            study.run(
                study.config(
                    cell.name(seed),
                    cell.mode,
                    cell.workers,
                    cell.pace,
                    seed,
                    epochs=epochs,
                    svm={"stopping": {"rule": "delta", "preset": "authors"}},
                )
            )
            for seed in seeds
        ]
        results = [Result(place.path) for place in places]
        seconds = mean(result.seconds for result in results)
        ends = [len(found) for place in places for found in epochs_of(place, cell.workers)]
        print(
            f"| {cell.pace.told} | {cell.mode} | {cell.workers} | {seconds:.1f} | {_span(ends)} "
            f"| {mean(result.metrics['test_accuracy'] for result in results):.4f} "
            f"| {mean(result.staleness['mean'] for result in results):.1f} |",
            flush=True,
        )
        lines.setdefault(cell.pace, {}).setdefault(cell.mode, []).append((cell.workers, seconds))
        if cell.workers == max(each.workers for each in cells) and cell.mode not in losses:
            losses[cell.mode] = [found for found in epochs_of(places[0], cell.workers) if found]
    (study.out / "time.png").write_bytes(time_by_workers(lines))
    (study.out / "loss.png").write_bytes(loss_curves(losses))
    _tell_losses(losses)


def epochs_of(place: RunFolder, workers: int) -> Iterator[list[tuple[float, float]]]:
    """Training and validation loss after each epoch, of each worker in turn."""
    for rank in range(workers):
        lines = place.log(f"worker-{rank}").read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        yield [(entry["loss"], entry["validation_loss"]) for entry in entries if entry.get("event") == "epoch"]


def changing_members(study: Study, modes: Sequence[str], pace: Pace, length: int) -> None:
    """Each mode without and with two workers that leave and one that joins."""
    print(f"\n{POOL} workers, {length} epochs; a push: {pace.told}\n")
    print("| mode | run | members | examples counted | to be counted | seconds | test accuracy | test loss |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, Disturbed] = {}
    for mode in modes:
        calm = study.config(f"calm-{mode}", mode, POOL, pace, epochs=length)
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


def _tell_losses(losses: dict[str, Epochs]) -> None:
    """A table of the curves at a few epochs that all have made, and after each worker's last one."""
    fewest = min(len(epochs) for found in losses.values() for epochs in found)
    shown = [number for number in (1, 2, 5, 10, 20) if number <= fewest]
    print("\n| mode | loss, mean over the workers | " + " | ".join(f"epoch {number}" for number in shown) + " | last |")
    print("|---|---|" + "---|" * len(shown) + "---|")
    for (mode, found), (which, name) in product(losses.items(), enumerate(("training", "validation"))):
        values = [mean(epochs[place][which] for epochs in found) for place in [*(number - 1 for number in shown), -1]]
        print(f"| {mode} | {name} | {' | '.join(f'{value:.4f}' for value in values)} |")


def _in_turn(members: Sequence[int]) -> str:
    """'4, 2, 3' for all that there were, each once until it changes."""
    return ", ".join(str(count) for place, count in enumerate(members) if not place or count != members[place - 1])


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"


def _pace(given: str) -> Pace:
    """BATCHES, BATCHES:SECONDS or BATCHES:SECONDS:STALLS."""
    batches, _, rest = given.partition(":")
    seconds, _, stalls = rest.partition(":")
    pace = Pace(_numbers(batches, int, 1)[0], _numbers(seconds or "0", float, 0)[0], stalls)
    if stalls and not pace.step:
        raise UsageError(
            f"--paces: {given!r} has nothing that could take longer; give seconds above 0, like 8:0.002:5x@10%."
        )
    return pace


def _numbers(given: str, kind: type[Any], least: int) -> list[Any]:
    """The numbers that stand between commas. UsageError: one is none, or below `least`."""
    try:
        found = [kind(number) for number in given.split(",")]
    except ValueError as error:
        raise UsageError(f"Got {given!r}; expected numbers with commas, like 1,2.") from error
    if min(found) < least:
        raise UsageError(f"Got {given!r}; expected numbers from {least} on, with commas.")
    return found


if __name__ == "__main__":
    with exits("hogwild"):
        typer.run(main)

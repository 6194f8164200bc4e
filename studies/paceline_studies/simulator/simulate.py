"""`paceline simulate`: one run in virtual time, with gradients or timing alone, and what the command says of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from paceline.base.terminal import show
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline_studies.simulator.limits import refuse_unlike
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import Timed, WorkerTimes, timed, times_of

if TYPE_CHECKING:
    from rich.console import Console

QUICK = 2e9
"""Weights x examples x epochs up to which gradients are computed where nobody says whether: about half a minute."""
ROOM = 1e8
"""Weights of all workers together up to which they are."""
SHOWN = 16
"""Workers that are shown one by one."""
INSTEAD = "Train it for real: paceline run."


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation came to."""

    timed: Timed
    measures: dict[str, float]
    """Like test_accuracy; empty for timing alone."""
    of: str
    """What was trained, in words."""

    def facts(self, config: Config, scene: Scene) -> dict[str, Any]:
        """For programs; times in seconds."""
        return {
            "task": config.task,
            "policy": config.policy.model_dump(),
            "seed": config.seed,
            "scene": scene.model_dump(mode="json"),
            **asdict(self.timed),
            "throughput": self.timed.throughput,
            "measures": self.measures,
        }


@dataclass(frozen=True, slots=True)
class Extent:
    """What to compute. None where nobody has said it."""

    gradients: bool | None = None
    weights: int | None = None
    """Of the model, instead of the task's."""
    examples: int | None = None
    """Of the training data, instead of the task's."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Weights and examples, if no task is needed for them; UsageError where one of them is missing, or where gradients
        are wanted of a model that is no more than its size."""
        if self.weights is None and self.examples is None:
            return None
        if self.weights is None or self.examples is None:
            raise UsageError("--weights and --examples go together: give both, or none to take the task's.")
        if self.gradients:
            raise UsageError(
                "--weights and --examples stand for a model and data that nobody has; leave --gradients out."
            )
        return self.weights, self.examples


def simulate(config: Config, scene: Scene, asked: Extent) -> Simulated:
    """Simulates one run. ConfigError or UsageError before anything starts where settings or scene are wrong."""
    scene.check(config)
    size = asked.size
    refuse_unlike(config, bool(asked.gradients), INSTEAD)
    if size is not None:
        weights, examples = size
        of = f"{weights:,} weights and {examples:,} examples"
        return Simulated(timed(config, scene, weights, examples), {}, of)
    from paceline.data.shards import open_shards
    from paceline.sharder.sharding import make_shards
    from paceline.tasks.task import load_task
    from paceline.worker.training.model_and_gradient import Replica

    with TemporaryDirectory() as folder:
        make_shards(config, Path(folder))
        replica = Replica(load_task(config.task, config.model), "cpu", config.seed)
        weights, shapes = len(replica.local), replica.shapes
        examples = open_shards(Path(folder)).manifest.train_examples
        if asked.gradients or (asked.gradients is None and is_quick(config, weights, examples)):
            return _computed(config, scene, Path(folder))
    return Simulated(timed(config, scene, weights, examples, shapes=shapes), {}, config.task)


def is_quick(config: Config, weights: int, examples: int) -> bool:
    """Whether gradients are computed where nobody says: where they can be, and soon are."""
    if weights * examples * config.epochs > QUICK or weights * config.workers > ROOM:
        return False
    try:
        refuse_unlike(config, True, INSTEAD)
    except ConfigError:
        return False
    return True


def _computed(config: Config, scene: Scene, shards: Path) -> Simulated:
    from paceline_studies.simulator.problem import problem_of
    from paceline_studies.simulator.training import training_of

    try:
        problem = problem_of(config, shards, exact=True)
    except ValueError as error:
        raise ConfigError(
            f"The gradients of task {config.task} can't be simulated: {error} Its timing can: --timing."
        ) from error
    training = training_of(config, problem, scene=scene)
    training.advance()
    return Simulated(times_of(training), training.measures(), config.task)


def print_simulated(found: Simulated, config: Config, scene: Scene, console: "Console") -> None:
    """A few sentences, and a table of where each worker's time went."""
    from rich.table import Column, Table

    for line in summary(found, config, scene):
        show(console, line)
    names = ("steps", "compute", "push", "wait", "pull", "staleness")
    table = Table("worker", *(Column(name, justify="right") for name in names))
    for name, worker in shown(found.timed.workers):
        table.add_row(name, f"{worker.clock:,}", *shares(worker), f"{worker.staleness:.2f}")
    console.print(table)


def summary(found: Simulated, config: Config, scene: Scene) -> list[str]:
    """What was simulated, and what came of it."""
    timed, waits = found.timed, sum(worker.wait for worker in found.timed.workers)
    servers = f"{config.servers} server{'s' * (config.servers != 1)}"
    epochs = f"{config.epochs} epoch{'s' * (config.epochs > 1)}"
    scores = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.measures.items() if "accuracy" in name]
    what = "real gradients" if found.measures else "timing alone, without gradients"
    waiting = _share(waits, timed.seconds * config.workers)
    return [
        f"simulated: {found.of}, {config.policy.name}, {config.workers:,} workers, {servers}, {epochs}; {what}",
        f"assumed, not measured: an equal worker's mini-batch takes {_time(scene.step)} (speeds {scene.speeds}), links of "
        f"{scene.link}, a server's work on a push {_time(scene.service)} and {_time(scene.service_per_million)} for a million "
        "values",
        f"training takes {timed.seconds:,.1f} s: {timed.throughput:,.0f} examples/s, {timed.pushes:,} pushes with staleness "
        f"{timed.staleness.mean:.2f} (at most {timed.staleness.max:,}); waiting is {waiting} of all workers' time",
        *timed.choices,
        *([", ".join(scores)] if scores else []),
    ]


def shown(workers: Sequence[WorkerTimes]) -> list[tuple[str, WorkerTimes]]:
    """All of them, or of many those who made the most steps, the middle one and those who made the fewest."""
    if len(workers) <= SHOWN:
        return [(worker.name, worker) for worker in workers]
    order = sorted(workers, key=lambda worker: -worker.clock)
    places = {"most steps": 0, "middle": len(order) // 2, "fewest steps": -1}
    return [(f"{order[place].name} ({name})", order[place]) for name, place in places.items()]


def shares(worker: WorkerTimes) -> list[str]:
    """Where the time between its first computation and its last answer went."""
    spent = (worker.compute, worker.push, worker.wait, worker.pull)
    return [_share(each, sum(spent)) for each in spent]


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _time(seconds: float) -> str:
    return f"{1000 * seconds:g} ms" if seconds < 1 else f"{seconds:g} s"

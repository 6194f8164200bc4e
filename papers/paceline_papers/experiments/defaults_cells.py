"""The cells of defaults.py: what a user says of a training in one process, the runs that come of it, and the
file that keeps what they gave."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paceline.core.errors import ConfigError
from paceline.core.optimizers.effective import cautioned
from paceline.core.policies.policy import build_policy, from_shorthand, is_served
from paceline.core.settings.config import Config, Options
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import open_shards
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_config, load_task
from paceline_studies.simulator.problem import Problem, problem_of
from paceline_studies.simulator.training import train

TORCH = "plain torch"
"""Instead of a policy: one process without Paceline."""
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class User:
    """What a user says of a training in one process of plain torch: rates that are good there, and nothing of workers."""

    task: str
    batch: int
    epochs: int
    rates: dict[str, float]
    """By optimizer."""
    metric: str = "accuracy"
    """Of the task, the higher the better (ratio)."""
    orders: int = 3
    """In how many orders of the examples plain torch trains with each seed."""

    def optimizer(self, name: str) -> dict[str, Any]:
        """As in the config."""
        momentum = {"momentum": 0.9, "weight_decay": 1e-4} if name == "sgd" else {}
        return {"name": name, "lr": self.rates[name]} | momentum


USERS = {
    "digits": User("digits", 32, 10, {"sgd": 0.1, "adam": 0.003, "adamw": 0.003}),
    "wine": User(str(HERE.parents[2] / "examples/wine.py"), 8, 10, {"sgd": 0.05, "adam": 0.01, "adamw": 0.01}),
    "diabetes": User(str(HERE / "diabetes.py"), 16, 10, {"sgd": 0.003, "adam": 0.003, "adamw": 0.003}, "r2"),
}
NETWORKS = {
    "digits_cnn": User(str(HERE / "digits_cnn.py"), 32, 10, {"adam": 0.002}),
    "transformer": User(str(HERE / "transformer.py"), 32, 3, {"adam": 0.001}, orders=5),
    "characters": User(str(HERE / "characters.py"), 16, 1, {"adam": 0.001}),
}
"""Larger ones: a CNN, letters that are made up, and a GPT of a million parameters."""
CNN = User(str(HERE / "small_cifar10.py"), 32, 3, {"sgd": 0.01}, orders=5)
"""On CIFAR-10, which is the user's own; in processes, since each epoch has other crops of its pictures."""
ALL = USERS | NETWORKS | {"cnn": CNN}
CLUSTERS = {"equal": "1x", "slow": "10x"}
"""How slow the last worker is."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One run."""

    seed: int
    task: str
    optimizer: str
    workers: int
    cluster: str
    policy: str
    way: str = "virtual"
    """virtual: in virtual time; processes: in real ones."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell gave."""

    score: float | None
    """None where the combination is refused."""
    note: str = ""
    """Why."""


class CellStore:
    """Cells whose runs are over, one in each line of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[Cell, CellResult] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            values = json.loads(line)
            self.found[Cell(**values["cell"])] = CellResult(**values["found"])

    def add(self, cell: Cell, found: CellResult) -> None:
        """Writes it down at once, for the next call."""
        self.found[cell] = found
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"cell": asdict(cell), "found": asdict(found)}) + "\n")


def user_of(cell: Cell) -> User:
    """Who asks for it."""
    return ALL[cell.task]


def config_of(cell: Cell, data: str = "bundled") -> Config:
    """The settings of a cell: what the user says, the policy and the number of workers. All others are defaults. ConfigError:
    the combination is refused."""
    user, policy = user_of(cell), from_shorthand(cell.policy)
    slow = {} if cell.cluster == "equal" else {str(cell.workers - 1): CLUSTERS[cell.cluster]}
    return load_config(
        overrides={
            "task": user.task,
            "batch_size": user.batch,
            "epochs": user.epochs,
            "optimizer": user.optimizer(cell.optimizer),
            "policy": policy,
            "workers": cell.workers,
            "servers": 1 if is_served(Options(**policy)) else 0,
            "slow": slow,
            "seed": cell.seed,
            "data": {"path": data},
        }
    )


def is_told(cell: Cell) -> bool:
    """Whether the first lines of such a run say that it may end below one process."""
    config = config_of(cell)
    return bool(cautioned(config, build_policy(config.policy)))


def run_cell(cell: Cell, folder: Path) -> CellResult:
    """Runs one cell in virtual time; shards are kept in `folder`."""
    if cell.policy.startswith(TORCH):
        return CellResult(plain(cell, folder))
    try:
        config = config_of(cell)
    except ConfigError as error:
        return CellResult(None, str(error))
    trained = problem(cell.task, cell.workers, cell.seed, folder)
    with np.errstate(all="ignore"):
        score = trained.score(train(config, trained).model)
    return CellResult(max(-1.0, score) if np.isfinite(score) else -1.0)


@cache
def problem(task: str, workers: int, seed: int, folder: Path) -> Problem:
    """What the cells of a task, a number of workers and a seed train."""
    cell = Cell(seed, task, next(iter(ALL[task].rates)), workers, "equal", "bsp")
    return problem_of(config_of(cell), folder / f"{task}-{workers}-{seed}")


def torch_cells(task: str, optimizer: str, seed: int) -> list[Cell]:
    """Plain torch's, one for each order of the examples."""
    return [Cell(seed, task, optimizer, 1, "equal", f"{TORCH} {order}") for order in range(ALL[task].orders)]


def plain(cell: Cell, folder: Path, data: str = "bundled") -> float:
    """The score of a training by torch alone: its modules, loss and optimizers, on the same split and from the same first
    weights as the runs of the same seed."""
    config = config_of(Cell(cell.seed, cell.task, cell.optimizer, 1, "equal", "bsp"), data)
    folder = folder / f"{cell.task}-1-{cell.seed}"
    return score_of(
        config, plain_torch(config, int(cell.policy.rpartition(" ")[2]), folder), user_of(cell).metric, folder
    )


def plain_torch(config: Config, order: int, folder: Path, steps: int | None = None) -> torch.nn.Module:
    """The model that torch alone trains with these settings. `order`: which of the orders of the examples; `steps`: how many,
    default: those of the epochs."""
    task = load_task(config.task, config.model)
    make_shards(config, folder)
    train = open_shards(folder).shard(0)
    torch.manual_seed(config.seed)
    model = task.model()
    optimizer = _optimizer(config, model)
    per_epoch = steps_per_epoch([len(train)], [[0]], config.batch_size)
    sampler = Sampler([len(train)], config.batch_size, per_epoch, config.seed + 1000 * order, "worker-0")
    random = np.random.default_rng([config.seed, order])
    model.train()
    for step in range(steps or config.epochs * per_epoch):
        rows = sampler.indices(step + 1)
        inputs, labels = task.prepare(train.features[rows], train.labels[rows], random)
        optimizer.zero_grad()
        task.loss(model, inputs, labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def score_of(config: Config, model: torch.nn.Module, metric: str, folder: Path) -> float:
    """The task's metric of the model on the test examples."""
    task, test = load_task(config.task, config.model), open_shards(folder).part("test")
    inputs, labels = task.prepare(np.array(test.features), np.array(test.labels), None)
    model.eval()
    with torch.no_grad():
        return float(task.metrics(model(inputs), labels)[metric])


def _optimizer(config: Config, model: torch.nn.Module) -> torch.optim.Optimizer:
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    found: torch.optim.Optimizer = kinds[config.optimizer.name](model.parameters(), **config.optimizer.options)
    return found


def planned(
    policies: Sequence[str],
    tasks: Sequence[str],
    optimizers: Sequence[str],
    workers: Sequence[int],
    seeds: int,
    way: str = "virtual",
) -> Iterator[Cell]:
    """All cells, seed after seed, so that the first results are a whole table of fewer seeds. With one worker no other could
    be slow. Optimizers that a task has no rate for are left out."""
    for seed in range(seeds):
        for task in tasks:
            for optimizer in [name for name in optimizers if name in ALL[task].rates]:
                yield from torch_cells(task, optimizer, seed)
                for count in workers:
                    for cluster in CLUSTERS if count > 1 else ("equal",):
                        for policy in policies:
                            yield Cell(seed, task, optimizer, count, cluster, policy, way)

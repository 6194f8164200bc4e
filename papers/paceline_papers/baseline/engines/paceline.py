"""paceline: `paceline run` with a server and workers, on the same split and with scikit-learn's features."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from paceline.core.errors import PacelineError
from paceline.core.linear.objective import Objective
from paceline.data.linear_model import LinearClassifier, read_linear_model
from paceline.launch.this_machine.end_with_parent import tethered
from paceline_papers.baseline import rows_task
from paceline_papers.baseline.encoding import encoding, labels
from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.model import Model
from paceline_papers.baseline.scores import not_zero
from paceline_papers.baseline.split import Split

SERVERS = 1
RUN = "run"
LOG = "paceline.log"


class Paceline(Engine):
    """Hogwild by servers: each push is applied at once. Seconds of training are the run's own; those to start its processes,
    to write shards and to end are apart, but CPU seconds are of all."""

    has_executors = True
    executor = "worker"
    policy: ClassVar[str] = "asp"

    def trains(self, model: Model) -> bool:
        return any(model.paceline(setting, 1) is not None for setting in model.variants.values())

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        from scipy.sparse import csr_array

        logs.mkdir(parents=True, exist_ok=True)
        own, other = labels(split)
        for name in dict.fromkeys(point.encoding for point in points):
            start = time.perf_counter()
            train, test = encoding(name).arrays(split)
            with TemporaryDirectory(prefix="paceline-baseline-") as made:
                rows_task.write(Path(made), train, own)
                preparing = time.perf_counter() - start
                for point in (point for point in points if point.encoding == name):
                    start, cpu = time.perf_counter(), _cpu_seconds()
                    told = _run(self._settings(point, split), point.executors, Path(made), logs / LOG)
                    whole, used = time.perf_counter() - start, _cpu_seconds() - cpu
                    start = time.perf_counter()
                    model = read_linear_model(Path(made) / told["model"])
                    margins = _margins(csr_array(test), model)
                    answers = margins.argmax(1)
                    testing = time.perf_counter() - start
                    yield (
                        point,
                        {
                            "preparing": preparing,
                            "starting": whole - told["seconds"],
                            "training": told["seconds"],
                            "testing": testing,
                            "cpu": used,
                            "confusion": _confusion(other, answers, len(split.classes)),
                            "log_loss": _log_loss(other, margins) if point.model.tells_chances else None,
                            "weights": not_zero(model.weights),
                        },
                    )

    def _settings(self, point: Point, split: Split) -> Mapping[str, Any]:
        rows = split.train_rows
        own = point.model.paceline(point.setting, rows) or {}
        return {"policy.name": self.policy, "svm.batches": rows_task.batches(rows), **own}


def _run(settings: Mapping[str, Any], workers: int, folder: Path, log: Path) -> Mapping[str, Any]:
    """Trains on the rows in this folder; what the run says of itself. PacelineError: it failed."""
    command = tethered(sys.executable, "-m", "paceline.cli", "run", rows_task.__file__, "--json", "--fresh", "--yes")
    command += ["--data", str(folder), "--run", RUN, "-w", str(workers), "-s", str(SERVERS)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with log.open("ab") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, cwd=folder, check=False
        )
    if done.returncode:
        raise PacelineError(f"paceline run ended with exit code {done.returncode}. Its log: {log}")
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told


def _margins(rows: Any, found: LinearClassifier) -> Any:
    """Of these rows (N, classes)."""
    if found.offsets is None:  # one model for two classes
        one = rows @ found.weights.astype(np.float64) + found.offset
        return np.column_stack([np.zeros(len(one)), one])
    return rows @ found.weights.T.astype(np.float64) + found.offsets


def _confusion(labels: Any, answers: Any, classes: int) -> list[list[int]]:
    found = np.bincount(labels * classes + answers, minlength=classes**2).reshape(classes, classes)
    return [[int(count) for count in row] for row in found]


def _log_loss(labels: Any, margins: Any) -> float:
    return float(Objective(loss="softmax").losses_of_classes(labels, margins.T).mean())


def _cpu_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

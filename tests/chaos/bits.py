"""Lock-step of real processes, dense and sparse: what is killed, stopped and resumed ends with the bits of a run that is left
alone (tests/runs/test_lock_step_bits.py)."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.runs import test_lock_step_bits as whole
from tests.support.processes import Cluster

ROWS, FEATURES, EACH = 1200, 300, 12
FORMS: dict[str, dict[str, Any]] = {
    "dense": {},
    "sparse": {
        "task": "svm",
        "updates": "sparse",
        "policy": {"name": "bsp"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0},
        "schedule": {"name": "constant"},
        "batch_size": 8,
        "epochs": 40,
    },
}
"""Settings next to those of the test."""


def rows(path: Path) -> dict[str, Any]:
    """Writes a sparse set of examples; returns the settings that name it."""
    rng, lines = random.Random(1), []
    for _ in range(ROWS):
        label, places = rng.choice((-1, 1)), sorted(rng.sample(range(1, FEATURES + 1), EACH))
        values = (f"{place}:{rng.random() + (label > 0 and place % 7 == 0):.4f}" for place in places)
        lines.append(f"{label:+d} {' '.join(values)}\n")
    path.write_text("".join(lines))
    return {"data": {"path": str(path), "validation": 0, "test": 0}}


def run(form: str, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is done to each run, and its final slices: version and SHA-256 of weights and momentum. AssertionError where a run
    does not go on."""
    settings = whole.SETTINGS | FORMS[form]
    if form == "sparse":
        settings |= rows(folder / "rows.svm")
    for disturbed in (whole.undisturbed, *whole.DISTURBED):
        with Cluster(folder / disturbed.__name__, **settings) as cluster:
            yield disturbed.__name__.replace("_", " "), disturbed(cluster)

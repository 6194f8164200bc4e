"""What [Hogwild]'s Figs. 1 to 3 have in common: runs of real processes, in lock-step and asynchronous, until the rule of the
paper, or of its authors' program, stops them."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from statistics import mean
from typing import Any

from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.settings.read_config import complete
from paceline.results.result import Result
from paceline_papers.reproduce.rcv1_runs import NEEDS, rows_like_rcv1
from paceline_papers.reproduce.real_runs import check_finished, run_small, trained
from paceline_papers.reproduce.recipe import Around, Figures, Full

MODES: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {"policy": {"name": "bsp"}, "svm": {"stop": "all"}},
    "asynchronous": {"policy": {"name": "everyone", "merge": "overwrite"}, "svm": {"stop": "own"}},
}
"""As published: all stop together, by the mean of their losses; or each by its own."""
STOPPING = {"rule": "delta", "preset": "authors"}
"""Of the small size: so few rows never come as close as the paper's tolerance, a fiftieth of this one."""
WORKERS = (1, 2, 4, 6, 8, 12)
EXAMPLES = 3000
BATCHES, PAUSE = 8, 0.002
"""Mini-batches of a push, and the pause of each (seconds): without it two cores are no faster with more workers."""
SMALL = (
    f"{EXAMPLES:,} made-up rows like RCV1's and one server, as real processes. A push holds {BATCHES} mini-batches, and each "
    f"of them pauses for {1000 * PAUSE:g} ms, since two cores are no faster with more workers. The rule that ends a run has "
    "the tolerance of the authors' program, 50 times the paper's."
)


def row(mode: str, workers: int) -> str:
    """The name of its runs."""
    return f"{mode}, {workers} worker{'s' * (workers != 1)}"


ROWS = {row(mode, workers): (mode, workers) for mode, workers in product(MODES, WORKERS)}


def settings(
    mode: Mapping[str, Any],
    data: Path,
    workers: int,
    batches: int = BATCHES,
    pause: float = PAUSE,
    stopping: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the settings of all such runs have in common, besides the preset's. `mode`: as in `MODES`; `pause` in seconds."""
    return {
        "task": "rcv1",
        "data": {"path": str(data)},
        "workers": workers,
        "servers": 1,
        "policy": mode["policy"],
        "svm": {**mode["svm"], "batches": batches, "stopping": stopping},
        "slow": {"all": "2x"},
        "nominal_step": pause * batches,
        "restarts": 0,
    }


def raced(around: Around, name: str, seed: int) -> Figures:
    """Seconds until the last worker stopped, its epochs, a mean epoch's seconds, and test accuracy (percent). Of the workers'
    mean training and validation loss: the curves over the epochs that all made, the ends, and the largest rise of the latter
    from one epoch to the next."""
    mode, workers = ROWS[name]
    data = rows_like_rcv1(around.folder / f"rows-{seed}", seed, EXAMPLES)
    wanted = settings(MODES[mode], data, workers, stopping=STOPPING)
    wanted |= {"run": f"{mode}-{workers}-{seed}", "epochs": 100, "seed": seed}
    config = complete(wanted, preset="hogwild")
    place, config = open_run(config, fresh=True, runs=around.folder / "runs")
    outcome = run_small(config, place)
    check_finished(place, outcome)
    return _figures(Result(place.path), workers)


def raced_in_full(around: Around, name: str, seed: int) -> Figures:
    """The same on the real RCV1, a mini-batch a push, without pauses."""
    mode, workers = ROWS[name]
    own = {
        "workers": workers,
        "servers": 1,
        "policy": MODES[mode]["policy"],
        "svm.stop": MODES[mode]["svm"]["stop"],
        "seed": seed,
    }
    return _figures(trained(around, f"{name} seed{seed}", "hogwild", own), workers)


def _figures(result: Result, workers: int) -> Figures:
    place = RunFolder(result.folder)
    losses = [_losses(place, rank) for rank in range(workers)]
    epochs = max(map(len, losses))
    training, validation = (_means([[pair[which] for pair in each] for each in losses]) for which in (0, 1))
    return {
        "seconds": result.seconds,
        "epochs": epochs,
        "epoch": result.seconds / epochs,
        "accuracy": 100 * result.metrics["test_accuracy"],
        "training": training,
        "validation": validation,
        "last_training": training[-1],
        "last_validation": validation[-1],
        "rise": max(after - before for before, after in pairwise(validation)),
    }


def _losses(place: RunFolder, rank: int) -> list[tuple[float, float]]:
    """Training and validation loss after each epoch of a worker, from its log; of an epoch that was made again, the last."""
    lines = place.log(f"worker-{rank}").read_text().splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    found = {each["epoch"]: (each["loss"], each["validation_loss"]) for each in entries if each.get("event") == "epoch"}
    return [found[epoch] for epoch in sorted(found)]


def _means(curves: Sequence[Sequence[float]]) -> list[float]:
    return [round(mean(values), 5) for values in zip(*curves, strict=False)]


FULL = Full("The real RCV1 and one server, real processes, a mini-batch a push.", NEEDS, raced_in_full)

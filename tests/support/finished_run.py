"""The folder of a run that has ended well, as a comparison reads it: its settings and scores, no processes and no model."""

from pathlib import Path
from typing import Any

from paceline.core.chief.scoring import Score
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.settings.load_settings import load
from paceline_studies.search.point import keep_point


def finished_run(
    runs: Path,
    name: str,
    score: float = 0.9,
    *,
    seconds: float = 10.0,
    measure: str = "max accuracy",
    splits: tuple[str, ...] = ("validation", "test"),
    simulated: bool = False,
    **settings: Any,
) -> RunFolder:
    """Two epochs that end with this score on all splits, half of it after the first one; `settings`: of the digits' run."""
    folder, _ = open_run(load(None, {"task": "digits", "run": name, **settings}), runs=runs)
    metric = measure.split()[1]
    scores = [
        Score(
            epoch,
            seconds * epoch / 2,
            [],
            {f"{split}_{metric}": score * epoch / 2 for split in splits},
            epoch == 2,
            measure,
        )
        for epoch in range(3)
    ]
    figures = {"staleness_mean": 1.5, "wait_seconds": seconds / 4}
    keep_point(
        folder,
        scores,
        "the budget of epochs is spent",
        began=0.0,
        train_examples=1000,
        examples=2000,
        workers=[{"worker": "worker-0", "clock": 1, "figures": figures}],
        simulated=simulated,
    )
    return folder

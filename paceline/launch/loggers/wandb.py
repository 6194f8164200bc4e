"""A run of Weights & Biases for each run: settings as its config, curves and scores over the version, the final scores as its
summary. Offline, in the run's folder, unless WANDB_MODE says otherwise; `wandb sync RUN/wandb/offline-run-*` uploads it. The
project: WANDB_PROJECT, otherwise paceline."""

import os
import uuid
from collections.abc import Mapping
from typing import Any

from paceline.callback import Callback, RunBegin, RunEnd, RunWarning, Score, Status, chart_name

STEP = "version"
"""What curves are drawn over. Scores are of earlier versions than the newest status, and W&B's own step only grows."""


class WeightsAndBiases(Callback):
    """Independent of a run of W&B that is active in the caller's script. A run that is resumed goes on in the same run of
    W&B."""

    needs = "wandb"

    def begun(self, run: RunBegin) -> None:
        import wandb

        name = run.remembered("wandb") or run.remembered("wandb", uuid.uuid4().hex[:12])
        self._version = 0
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "paceline"),
            name=run.name,
            id=name,
            resume="allow",
            dir=os.environ.get("WANDB_DIR", run.folder),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type, unused-ignore]
            config=_nested(run.settings),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def status(self, status: Status) -> None:
        self._version = status.version
        own = {f"{each.name}/{name}": value for each in status.workers for name, value in each.curves.items()}
        self._run.log({STEP: status.version} | status.curves | own)

    def scored(self, score: Score) -> None:
        version = score.versions[0] if score.versions else self._version
        self._run.log({STEP: version} | {chart_name(name): value for name, value in score.metrics.items()})

    def warned(self, warning: RunWarning) -> None:
        self._run.alert(title=warning.kind, text=str(warning))

    def ended(self, end: RunEnd) -> None:
        self._run.summary.update({**end.metrics, "reason": end.reason, "training_seconds": end.seconds})
        self._run.finish(exit_code=end.exit_code)


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{'optimizer.lr': 0.1} as {'optimizer': {'lr': 0.1}}, which W&B shows as a tree."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, last = key.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return found

"""A run of MLflow's for each run: settings as parameters, curves and scores as metrics, warnings as tags, the final model as an
artifact. Where to: MLFLOW_TRACKING_URI, otherwise what MLflow takes by itself in the working folder. The experiment:
MLFLOW_EXPERIMENT_NAME, otherwise paceline."""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paceline.callback import Callback, End, RunBegin, RunEnd, RunWarning, Score, Status, chart_name

if TYPE_CHECKING:
    from mlflow.entities import Run

_PARAMS = 100
"""Parameters that MLflow takes in one call."""
_METRICS = 1000
"""Metrics that it takes in one call."""
_LONGEST = 5000
"""Characters of a parameter's or tag's value that it takes, at least (5,000 for tags, 6,000 for parameters)."""
_ENDS = {End.FINISHED: "FINISHED", End.FAILED: "FAILED", End.STOPPED: "KILLED"}


class MLflow(Callback):
    """Speaks to MLflow by its client alone, so that a run that is active in the caller's script is left alone. A run that is
    resumed goes on in the same run of MLflow."""

    needs = "mlflow"

    def begun(self, run: RunBegin) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self._name = run.name
        self._version = 0
        known = self._known(run.remembered("mlflow"))
        if known is None:
            known = self._new(run)
            run.remembered("mlflow", known.info.run_id)
        self._run = known.info.run_id
        self._client.update_run(self._run, status="RUNNING")

    def status(self, status: Status) -> None:
        self._version = status.version
        own = {f"{each.name}/{name}": value for each in status.workers for name, value in each.curves.items()}
        self._metrics(status.version, status.curves | own)

    def scored(self, score: Score) -> None:
        version = score.versions[0] if score.versions else self._version
        self._metrics(version, {chart_name(name): value for name, value in score.metrics.items()})

    def warned(self, warning: RunWarning) -> None:
        self._client.set_tag(self._run, f"warning.{warning.kind}", str(warning)[:_LONGEST])

    def ended(self, end: RunEnd) -> None:
        for name, value in {"reason": end.reason[:_LONGEST], "training_seconds": f"{end.seconds:.3f}"}.items():
            self._client.set_tag(self._run, f"paceline.{name}", value)
        if end.model is not None:
            self._client.log_artifact(self._run, str(end.model), "model")
        self._client.set_terminated(self._run, _ENDS[end.how])

    def _known(self, run: str) -> "Run | None":
        """The run of MLflow's that an earlier start has made; None where this store has none."""
        from mlflow.exceptions import MlflowException

        try:
            return self._client.get_run(run) if run else None
        except MlflowException:
            return None

    def _new(self, run: RunBegin) -> "Run":
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "paceline")
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        tags = {"paceline.run": run.name, "paceline.folder": str(run.folder.resolve())}
        made = self._client.create_run(number, tags=tags, run_name=run.name)
        params = [Param(key, str(value)[:_LONGEST]) for key, value in run.settings.items()]
        for first in range(0, len(params), _PARAMS):
            self._client.log_batch(made.info.run_id, params=params[first : first + _PARAMS])
        return made

    def _metrics(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        for first in range(0, len(metrics), _METRICS):
            self._client.log_batch(self._run, metrics=metrics[first : first + _METRICS])

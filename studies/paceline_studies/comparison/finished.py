"""What a comparison takes of a run: its settings, its scores over time, and its figures, read from its folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paceline.callback import flat
from paceline.core.chief.best_model import Measure, measure_of
from paceline.core.chief.scoring import Score
from paceline.core.errors import DataError
from paceline.core.settings.config import Config
from paceline.data.manifest import Manifest, read_manifest
from paceline.data.shards import is_there
from paceline.launch.folder.run_folder import RunFolder
from paceline.results.report.course import mean, read_course
from paceline.results.result import Result
from paceline.settings.own_extensions import KEPT
from paceline_studies.search.folder import digest

OTHERWISE_ALIKE = ("run", "seed", "loggers", "ports")
"""Settings in which runs may differ that are the same training."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended well."""

    folder: RunFolder
    name: str
    """What people call it."""

    @cached_property
    def config(self) -> Config:
        return self.folder.settings()

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that makes it another training, by dotted key; a user's file by its content."""
        whole = self.config.model_dump(mode="json", exclude=set(OTHERWISE_ALIKE))
        own = [file for part in ("task", KEPT) for file in sorted((self.folder.path / part).glob("*.py"))]
        return {**flat(whole), **{f"content of {file.name}": digest(file.read_bytes()) for file in own}}

    @property
    def seed(self) -> int:
        return self.config.seed

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self.folder.facts()

    @cached_property
    def _result(self) -> Result:
        return Result(self.folder.path)

    @property
    def metrics(self) -> dict[str, float]:
        """Of the final version, like validation_accuracy."""
        return self._result.metrics

    @property
    def history(self) -> list[Score]:
        """The scores of all epochs, the oldest first."""
        return self._result.history

    @property
    def measure(self) -> Measure:
        """What it is judged by."""
        return measure_of(self.metrics, self._facts.get("measure", ""))

    @property
    def is_simulated(self) -> bool:
        """Whether its seconds are virtual ones."""
        return bool(self._facts.get("simulated"))

    @property
    def seconds(self) -> float:
        """Of training."""
        return self._result.seconds

    @property
    def throughput(self) -> float | None:
        """Examples a second of all workers together; None where nobody has counted."""
        examples = self._status.get("examples")
        return examples / self.seconds if examples and self.seconds else None

    @property
    def staleness(self) -> float | None:
        """Mean of the workers' means (folds)."""
        return self._result.staleness["mean"] if self._has("staleness_mean") else None

    @property
    def waited(self) -> float | None:
        """Share of the training time that a worker waited for others, all its processes together; their mean (ratio)."""
        if not self.seconds or not self._has("wait_seconds"):
            return None
        if self.is_simulated:
            return self._result.staleness["wait_seconds"] / self.seconds
        found = mean(sums.get("wait_seconds", 0.0) for sums in read_course(self.folder.metrics).sums.values())
        return None if found is None else found / self.seconds

    @property
    def manifest(self) -> Manifest | None:
        """Of its shards; None where they are deleted, or were never here."""
        return read_manifest(self.folder.shards) if is_there(self.folder.shards) else None

    @cached_property
    def _status(self) -> dict[str, Any]:
        return self.folder.last_status()

    def _has(self, figure: str) -> bool:
        return any(figure in worker["figures"] for worker in self._status.get("workers", []))


def read_runs(folders: Iterable[RunFolder]) -> list[Finished]:
    """The runs, each by its name, or by its path where two have the same. DataError where one is not finished, not scored, or
    damaged; ConfigError where its settings can't be read."""
    listed = list(folders)
    names = [folder.name for folder in listed]
    return [_read(folder, str(folder.path) if names.count(folder.name) > 1 else folder.name) for folder in listed]


def _read(folder: RunFolder, name: str) -> Finished:
    config, facts, path = folder.settings(), folder.facts(), folder.path
    if not facts:
        raise DataError(f"Run '{name}' can't be compared: {_without_facts(folder)}")
    if facts.get("exit_code") is None:
        raise DataError(
            f"Run '{name}' can't be compared: it has not ended. See where it is: paceline status {path}. If nothing runs, it "
            f"goes on with: paceline run {folder.config}"
        )
    if not facts.get("finished"):
        ended = f"it ended with exit code {facts['exit_code']}: {facts.get('reason')}."
        raise DataError(f"Run '{name}' can't be compared: {ended} {folder.how_to_go_on(config.servers)}")
    if not facts.get("metrics"):
        raise DataError(
            f"Run '{name}' can't be compared: it was not scored. Train it with scores (evaluate_every above 0; in a "
            "script, paceline.evaluate)."
        )
    if not folder.final_metrics():
        raise DataError(
            f"Run '{name}' can't be compared: {folder.metrics} is missing or damaged, and the course of its scores is in it."
        )
    return Finished(folder, name)


def _without_facts(folder: RunFolder) -> str:
    facts = folder.path / "run.json"
    if not facts.exists():
        return f"it was never started ({facts} is missing). Start it: paceline run {folder.config}"
    try:
        json.loads(facts.read_text())
    except (OSError, ValueError) as error:
        return f"{facts} is damaged ({error}). Train it again: paceline run {folder.config} --fresh"
    return f"{facts} holds nothing. Train it again: paceline run {folder.config} --fresh"

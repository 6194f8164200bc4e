"""What the report takes from a run's folder, and what of that is missing or damaged."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open

from paceline.core.chief.best_model import Measure, chooses, measure_of, scores_of, whose
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import DataError
from paceline.core.explain.cause import Finding, causes
from paceline.core.settings.config import Config
from paceline.data.manifest import Manifest, read_manifest
from paceline.launch.folder.audit import Lost
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.recoveries import Recovery
from paceline.launch.supervise.faults import Inflicted
from paceline.results.report.course import Course, read_course

T = TypeVar("T")
Shapes = dict[str, tuple[int, ...]]


@dataclass(slots=True)
class RunRecord:
    """One run as its folder tells it."""

    folder: RunFolder
    config: Config
    facts: dict[str, Any]
    """run.json."""
    course: Course
    shapes: Shapes
    """Of the model's tensors by name; empty where no model is kept."""
    manifest: Manifest | None
    """Of the shards, where they are kept."""
    findings: list[Finding] = field(default_factory=list)
    """What made it slow or worse, what costs most first (`paceline doctor`)."""
    troubles: list[str] = field(default_factory=list)
    """What can't be read, each with what to do."""

    @property
    def is_finished(self) -> bool:
        return bool(self.facts.get("finished"))

    @property
    def _end(self) -> dict[str, Any]:
        return RunFolder.of_its_end(self.facts)

    @property
    def seconds(self) -> float:
        """Of training."""
        return float(self._end.get("seconds") or self.course.seconds)

    @property
    def scores(self) -> list[Score]:
        """Oldest first."""
        return [Score.of(each) for each in self.course.last.get("scores", [])]

    @property
    def metrics(self) -> dict[str, float]:
        """Of the final version; empty while it is not scored."""
        found = self.scores
        return dict(found[-1].metrics) if found and found[-1].final else dict(self._end.get("metrics") or {})

    @property
    def measure(self) -> Measure:
        """What the best version is chosen by."""
        names = {name: 0.0 for score in self.scores for name in score.metrics}
        told = self.facts.get("measure") or next(
            (score.measure for score in reversed(self.scores) if score.measure), ""
        )
        return measure_of(names or {"test_accuracy": 0.0}, str(told))

    @property
    def whose(self) -> str:
        """What the names of the kept model's scores begin with (`best_model.whose`)."""
        return whose(name for score in self.scores[-1:] for name in score.metrics)

    @property
    def best(self) -> Score | None:
        """The best one on validation data, or on what else chooses; None where none was scored."""
        part = f"{self.whose}{self.chooses}"
        scored = [score for score in self.scores if f"{part}_{self.measure.name}" in score.metrics]
        return max(scored, key=lambda score: self.measure.rank(scores_of(score.metrics, part)), default=None)

    @property
    def chooses(self) -> str:
        """The split whose scores choose the best version (`best_model.chooses`)."""
        return chooses(self.scores[-1].metrics if self.scores else {}).removeprefix(self.whose)

    @property
    def warnings(self) -> list[RunWarning]:
        found = self._end.get("warnings") or self.course.last.get("warnings", [])
        return [RunWarning(**each) for each in found]

    @property
    def choices(self) -> list[str]:
        """What a policy that changes by itself has chosen and why, oldest first."""
        return list(self.course.last.get("choices", []))

    @property
    def recovery(self) -> Recovery:
        return Recovery(**self._end.get("recovery", {}))

    @property
    def faults(self) -> list[Inflicted]:
        return [Inflicted.of(each) for each in self.facts.get("faults", [])]

    @property
    def lost(self) -> Lost | None:
        """None where nobody has counted it."""
        found = self._end.get("lost")
        return Lost(**found) if found else None


def read_kept(folder: RunFolder) -> RunRecord:
    """Reads all that it can. ConfigError where not even the settings can be read: then it is no run."""
    troubles: list[str] = []

    def tried(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (OSError, ValueError, DataError, SafetensorError) as error:
            troubles.append(str(error))
            return otherwise

    config = folder.settings()
    course = tried(lambda: read_course(folder.metrics), Course())
    if course.damaged:
        troubles.append(
            f"{folder.metrics} is damaged: {course.damaged:,} of its lines can't be read, and the curves are of the others."
        )
    facts = tried(lambda: _facts(folder.path / "run.json"), dict[str, Any]())
    shapes = tried(lambda: _shapes(folder.models / "last.safetensors"), Shapes())
    manifest = tried(lambda: read_manifest(folder.shards) if folder.shards.exists() else None, None)
    findings = tried(lambda: causes(course.evidence(config)), list[Finding]())
    return RunRecord(folder, config, facts, course, shapes, manifest, findings, troubles)


def _facts(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        raise DataError(
            f"{path} is damaged, so how the run ended is not known; the rest is from metrics.jsonl. `paceline audit` says "
            "whether the run can go on."
        )
    return found


def _shapes(path: Path) -> Shapes:
    if not path.exists():
        return {}
    try:
        with safe_open(path, "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(f"{path} is damaged: {error}. Use best.safetensors next to it, or train again.") from error

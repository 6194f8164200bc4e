"""A run of a comparison in virtual time: real servers' slices, policies and gradients in this process, and seconds of a scene.
It leaves in its folder what a run of processes leaves there, as far as a comparison reads it."""

import time
from pathlib import Path

from paceline.core.chief.best_model import default_measure
from paceline.core.chief.scoring import Score
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline_studies.search.folder import SearchFolder
from paceline_studies.search.point import keep_point
from paceline_studies.simulator.problem import Problem, problem_of
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import Timed, times_of
from paceline_studies.simulator.training import training_of
from paceline_studies.simulator.workers import Training

REAL = "Train it for real: --real."
SCORED = ("validation", "test")


class Simulator:
    """Trains the runs of one comparison."""

    def __init__(self, folder: SearchFolder, scene: Scene) -> None:
        self._folder = folder
        self._scene = scene
        self._read: tuple[Path, Problem] | None = None
        """The newest problem, by its shards: runs that have the same come one after the other."""

    def train(self, config: Config, folder: RunFolder) -> None:
        """Trains the run in virtual time, and writes to its folder. ConfigError: its network can't be simulated."""
        began, problem = time.time(), self._problem(config)
        training = training_of(config, problem, scene=self._scene)
        course = _Course()
        training.run(course.watch)
        timed = times_of(training)
        scores = [*course.scores, _score(training, final=True)]
        keep_point(
            folder,
            scores,
            "simulated in the comparison's own process",
            began=began,
            train_examples=training.examples,
            examples=timed.examples,
            workers=_figures(timed),
            simulated=True,
        )

    def _problem(self, config: Config) -> Problem:
        shards = self._folder.shards(config)
        if self._read is None or self._read[0] != shards:
            try:
                self._read = shards, problem_of(config, shards)
            except ValueError as error:
                raise ConfigError(f"Task {config.task} can't be simulated: {error} {REAL}") from error
        return self._read[1]


class _Course:
    """Scores at the start, and at the end of each epoch of all workers together."""

    def __init__(self) -> None:
        self.scores: list[Score] = []

    def watch(self, training: Training) -> None:
        if training.epochs >= len(self.scores):
            self.scores.append(_score(training, final=False))


def _score(training: Training, final: bool) -> Score:
    metrics = training.measures(SCORED)
    names = {name.partition("_")[2] for name in metrics}
    return Score(int(training.epochs), training.time.now, [], metrics, final, str(default_measure(names)))


def _figures(timed: Timed) -> list[dict[str, object]]:
    """What the workers of a run report of themselves."""
    return [
        {"worker": each.name, "figures": {"staleness_mean": each.staleness, "wait_seconds": each.wait}}
        for each in timed.workers
    ]

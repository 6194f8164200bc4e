"""A whole training in virtual time: the real slices, policies and membership, real gradients, and workers that take as long
as the settings say. `workers` has what is the same with servers (`servers`) and without (`peers`)."""

import math
from dataclasses import dataclass, field

from paceline.core.policies.policy import is_served
from paceline.core.settings.config import Config
from paceline_studies.simulator.links import Links
from paceline_studies.simulator.pace import Chances, Pace, pace_of
from paceline_studies.simulator.peers import ComputedAmong
from paceline_studies.simulator.problem import Problem
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.servers import Computed
from paceline_studies.simulator.timeline import Timeline
from paceline_studies.simulator.workers import Trained, Training


def training_of(
    config: Config, problem: Problem, links: Links | None = None, spell: int = 1, scene: Scene | None = None
) -> Training:
    """This config's training in virtual time, before its first step. Without a scene the unit of time is a step of an equal
    worker, and `links` and `spell` say more (`Chances`); with one it is a second."""

    def chances(config: Config, time: Timeline) -> Pace:
        return Chances(config, time, links, spell)

    kind = Computed if is_served(config.policy) else ComputedAmong
    return kind(config, problem, chances if scene is None else pace_of(scene), scene)


def train(config: Config, problem: Problem) -> Trained:
    """Trains this config in virtual time."""
    return training_of(config, problem).run()


@dataclass(slots=True)
class Curve:
    """Scores of a training while it runs, one at the end of each epoch of all workers together."""

    times: list[float] = field(default_factory=list)
    """In steps of an equal worker."""
    scores: list[float] = field(default_factory=list)
    """Accuracy on the test examples (ratio); 0 where the model is no number."""

    def watch(self, training: Training) -> None:
        """Scores where another epoch is over."""
        if training.epochs >= len(self.scores) + 1:
            self.times.append(training.time.now)
            self.scores.append(training.measures(["test"])["test_accuracy"])

    def time_to(self, score: float) -> float:
        """When it had this score first; infinity where it never had."""
        return next((time for time, found in zip(self.times, self.scores, strict=True) if found >= score), math.inf)


def curve_of(config: Config, problem: Problem) -> Curve:
    """Trains this config in virtual time, and scores it after each epoch."""
    curve = Curve()
    training_of(config, problem).run(curve.watch)
    return curve
